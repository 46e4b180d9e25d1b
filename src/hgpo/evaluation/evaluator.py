"""The evaluator: plays an evaluation set with any policy, resumes, and writes the result.

`hgpo eval` of runs, models and servers and the evaluations during training all use it. Reset seed and random numbers
of an episode depend only on the evaluation's seed and the task's index in the split
(`hgpo.rollout.eval_tasks.evaluation_randomness`), so neither the order of episodes nor their number matters.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hgpo.agents import Agent
from hgpo.envs.base import Task
from hgpo.evaluation.eval_log import EvalLog
from hgpo.evaluation.manifests import Recognised, recognise
from hgpo.evaluation.result_files import StoredEvaluation, describe, summarise_evaluation, write_evaluation
from hgpo.policies.base import AnyPolicy
from hgpo.policies.wrappers import FREE, PricedPolicy, Prices, as_async
from hgpo.rollout.eval_tasks import EpisodeResult, EvalTask, Player, play_tasks
from hgpo.rollout.monitor import RolloutMonitor
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.runner import run_async
from hgpo.utils.files import check_writable
from hgpo.utils.progress import Reporter
from hgpo.utils.text import counted


@dataclass(frozen=True, slots=True)
class EvalBudget:
    """Limits of an evaluation.

    Attributes:
        prices: Prices of the policy's tokens.
        max_cost: No request is sent after the cost has reached this limit; None: no limit.
        max_concurrency: Most concurrent episodes, and so most concurrent requests.
    """

    prices: Prices = FREE
    max_cost: float | None = None
    max_concurrency: int = 256


NO_LIMIT = EvalBudget()


def check_each_once(split: str, tasks: Sequence[Task]) -> None:
    """`ValueError` if a task occurs twice: its episodes would have one place in the log."""
    if len({task.id for task in tasks}) != len(tasks):
        raise ValueError(f"split {split!r} names a task twice; every task must be played exactly once per seed")


def finish_evaluation(
    output: Path,
    log: EvalLog,
    episodes: Sequence[str],
    conditions: Mapping[str, Any],
    manifest: Recognised,
    reporter: Reporter,
    **facts: Any,
) -> StoredEvaluation:
    """Write the result of an evaluation and print its figures; delete the log if no step and no failure is in it.

    Args:
        output: the result file.
        log: the log with all episodes.
        episodes: ids of the episodes.
        conditions: split, seeds and temperature.
        manifest: the manifest that the tasks belong to.
        reporter: prints the figures.
        **facts: further attributes of `StoredEvaluation`.
    """
    summaries = [log.episodes[episode] for episode in episodes]
    stored = replace(
        summarise_evaluation(summaries, log.repeated, **conditions),
        manifest=manifest.id,
        manifest_differs=manifest.differs,
        **facts,
    )
    write_evaluation(output, stored)
    if log.rollouts is None and not stored.failed:
        log.delete()
    full = [summary.context_full for summary in summaries if summary.context_full]
    if full:
        reporter.say(f"{counted(len(full), 'episode')} ended with a full context and count as lost: {full[0]}")
    reporter.say(f"Evaluation ({output.stem}): {describe(stored.evaluation)}")
    return stored


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Plays each task of an evaluation set exactly once per seed.

    Attributes:
        tasks: the first tasks of the split, from a `LimitedSuite`, which checks the environment contract.
        environment: name of the environment.
        agent_name: name of the agent.
        agent: makes the prompts.
        rules: the rules of every episode; their temperature is the evaluation's, 0 for greedy decoding.
        split: name of the split.
        seeds: the set is played once per seed.
        reporter: prints progress.
        budget: see `EvalBudget`.
        monitor: warns of problems that all responses share.
        settings: further settings that determine the episodes, as JSON values; a resumed evaluation must have the same.
    """

    tasks: Sequence[Task]
    environment: str
    agent_name: str
    agent: Agent
    rules: RolloutRules
    split: str
    seeds: Sequence[int]
    reporter: Reporter
    budget: EvalBudget = NO_LIMIT
    monitor: RolloutMonitor | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """`ValueError` if a task occurs twice."""
        check_each_once(self.split, self.tasks)

    def evaluate(
        self, policy: AnyPolicy, output: Path, *, model: str, keep_going: bool = False, keep_steps: bool = False
    ) -> StoredEvaluation | None:
        """Play the episodes that are not in the log of `output`, and write the result to `output`.

        Args:
            policy: a batch policy or an asynchronous policy.
            output: a .json file.
            model: name of the policy.
            keep_going: a failed episode is named in the result instead of ending the evaluation; the next call plays
                it again.
            keep_steps: keep every step and the log; otherwise the log is deleted once all episodes are
                in the result.

        Returns:
            The result; None if, with `keep_going`, the cost limit was reached before all episodes were played.

        Raises:
            EvalLogError: the log belongs to another evaluation, or is damaged.
            ValueError: no episode was played to its end.
            EnvContractError, RolloutError, ContextFull, AnswerFailed, OverBudget: an episode failed and `keep_going` is
                false; if it is true, a full context counts as a loss.
        """
        check_writable(output)
        named = {"model": model, "environment": self.environment, "agent": self.agent_name}
        played = {"split": self.split, "seeds": list(self.seeds), "temperature": self.rules.temperature}
        conditions = {**named, **played, "tasks": len(self.tasks), **self.settings}
        log = EvalLog(output, conditions, keep_steps=keep_steps)
        episodes = [EvalTask(task, place, seed) for seed in self.seeds for place, task in enumerate(self.tasks)]
        missing = [task for task in episodes if not log.finished(task.id)]
        done = len(episodes) - len(missing)
        if done:
            self.reporter.say(f"{done} of {len(episodes)} episodes are already done; {len(missing)} remain")
        manifest = recognise(self.environment, self.tasks)
        if manifest.differs:
            self.reporter.warn(manifest.warning)
        prices, max_cost = self.budget.prices, self.budget.max_cost
        priced = PricedPolicy(as_async(policy), prices, limit=max_cost, cost=log.cost)
        began = time.perf_counter()
        if not self._play(missing, done, priced, log, keep_going=keep_going):
            ended = sum(log.finished(task.id) for task in episodes)
            self.reporter.say(
                f"cost {priced.cost:.4f} of --max-cost {max_cost:g}: {ended} of {len(episodes)} episodes are done"
            )
            return None
        cost = log.cost if prices != FREE else None
        seconds = None if done or log.repeated else time.perf_counter() - began
        facts = {**named, "cost": cost, "seconds": seconds}
        return finish_evaluation(output, log, [task.id for task in episodes], played, manifest, self.reporter, **facts)

    def _play(
        self, tasks: Sequence[EvalTask], done: int, policy: PricedPolicy, log: EvalLog, *, keep_going: bool
    ) -> bool:
        """Whether all tasks were played; `done` were played earlier."""
        outcomes: Counter[str] = Counter()
        with self.reporter.counting(f"evaluating on {self.split}") as count:

            def show(ended: int, total: int, note: str = "") -> None:
                failed = f", {outcomes['failed']} failed" if outcomes["failed"] else ""
                count(done + ended, done + total, f"{outcomes['won']} won{failed}" + (note and f", {note}"))

            concurrency = self.budget.max_concurrency
            batch = self.monitor.begin(len(tasks), show, concurrency) if self.monitor and tasks else None
            progress = batch.progress if batch else show

            def on_result(result: EpisodeResult) -> None:
                summary = result.summary
                if result.error is not None and not keep_going:
                    raise result.error
                log.add(summary, result.steps)
                outcomes["failed" if summary.failure else "won" if summary.won else "lost"] += 1
                progress(outcomes.total(), len(tasks))

            player = Player(policy, self.agent, self.rules, concurrency, batch.step if batch else lambda step: None)
            all_played = run_async(play_tasks(tasks, player, on_result))
            if batch:
                batch.finish()
        return all_played
