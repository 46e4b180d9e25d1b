"""Plays an evaluation set with a policy, and stores the result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hgpo.agents import Agent
from hgpo.envs.base import Task
from hgpo.evaluation.eval_runs import describe
from hgpo.evaluation.result_files import StoredEvaluation, write_evaluation
from hgpo.evaluation.statistics import EVALUATED_TOGETHER, evaluate
from hgpo.policies.base import AnyPolicy
from hgpo.rollout.monitor import RolloutMonitor
from hgpo.rollout.prompts import RolloutRules
from hgpo.utils.files import check_writable
from hgpo.utils.progress import Reporter


class Evaluator:
    """Plays the same tasks with any policy.

    Args:
        tasks: the evaluation set.
        agent: how the policy is prompted.
        rules: of the episodes.
        split: the set's name.
        seeds: the set is played once per seed.
        temperature: of sampling.
        reporter: prints progress and result.
        monitor: watches the episodes.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        agent: Agent,
        rules: RolloutRules,
        *,
        split: str,
        seeds: Sequence[int],
        temperature: float,
        reporter: Reporter,
        monitor: RolloutMonitor | None = None,
    ) -> None:
        self.tasks, self.agent, self.rules, self.reporter, self.monitor = tasks, agent, rules, reporter, monitor
        self.split, self.seeds, self.temperature = split, seeds, temperature

    def evaluate(self, policy: AnyPolicy, output: Path, *, model: str) -> StoredEvaluation | None:
        """Play the set, write the result to `output` and print it."""
        check_writable(output)
        with self.reporter.counting(f"evaluating on {self.split}") as count:
            batch = self.monitor and self.monitor.begin(len(self.tasks) * len(self.seeds), count, EVALUATED_TOGETHER)
            evaluation = evaluate(
                self.tasks,
                policy,
                self.rules,
                split=self.split,
                seeds=self.seeds,
                temperature=self.temperature,
                on_progress=batch.progress if batch else count,
                on_step=batch.step if batch else None,
            )
            if batch:
                batch.finish()
        stored = StoredEvaluation(evaluation)
        write_evaluation(output, stored)
        self.reporter.say(f"Evaluation ({output.stem}): {describe(evaluation)}")
        return stored
