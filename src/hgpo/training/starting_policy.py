"""Where training starts: a given model, or a tiny one that is built here and taught by demonstrations."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hgpo.agents import Situation
from hgpo.config import Config
from hgpo.envs.base import Task
from hgpo.envs.limit import LimitedSuite
from hgpo.evaluation import evaluate
from hgpo.policies.device import resolve_device
from hgpo.policies.transformers import TransformersPolicy, load_pretrained
from hgpo.rollout.collect import RolloutRules, fit_prompts
from hgpo.rollout.demonstrations import demonstrate
from hgpo.runs.assemble import rollout_rules
from hgpo.runs.checkpoints import newest_complete, numbered
from hgpo.runs.folder import RunDirectory, RunDirectoryError, write_json
from hgpo.runs.panel import percent
from hgpo.runs.progress import Reporter
from hgpo.training.checkpoint import load_model
from hgpo.training.warm_start import warm_start

# Beside the run's seed. The second pass of the task order (task_order) draws the same numbers, to uses that never meet;
# any other value would change every run that was measured.
_WARM_START_SEED = 1


def start_model(run: RunDirectory, config: Config) -> str:
    """Folder or hub name of the policy before the first update."""
    return str(run.start) if config.warm_start.enabled else config.policy.model


def prepare_start(run: RunDirectory, config: Config, suite: LimitedSuite, reporter: Reporter) -> None:
    """Make `start/` if the run needs one and does not have it yet; it appears whole or not at all."""
    if not config.warm_start.enabled or run.start.exists():
        return
    partial = run.start.with_name("start.partial")
    shutil.rmtree(partial, ignore_errors=True)
    rng = np.random.default_rng([config.run.seed, _WARM_START_SEED])
    rules = rollout_rules(config)
    tasks = suite.tasks(config.environment.train_split)
    shown = _demonstrations(tasks, suite, rules, rng, config, reporter)
    policy = _untrained(config, rules, shown)
    report = _imitate(policy, shown, tasks, rules, rng, config, reporter)
    policy.model.save_pretrained(partial)
    policy.tokenizer.save_pretrained(partial)
    write_json(partial / "warm_start.json", report)
    os.replace(partial, run.start)


def load_policy(source: str | Path, config: Config) -> TransformersPolicy:
    """A policy with the run's limits from a folder or hub name; weights in float32, as training needs them."""
    return wrap_model(*load_pretrained(source, device=config.policy.device, dtype="float32"), config)


def wrap_model(model: Any, tokenizer: Any, config: Config) -> TransformersPolicy:
    """A policy with the run's limits around a model that is already there."""
    return TransformersPolicy(
        model,
        tokenizer,
        max_prompt_tokens=config.policy.max_prompt_tokens,
        max_response_tokens=config.policy.max_response_tokens,
        precision=config.training.precision,
    )


def load_checkpoint_policy(run: RunDirectory, config: Config, checkpoint: str) -> tuple[TransformersPolicy, str]:
    """The policy of a run for playing: `newest`, `start` or an update's number; also what was meant by it."""
    if checkpoint == "start":
        if config.warm_start.enabled and not run.start.is_dir():
            raise RunDirectoryError(_nothing_to_play(run, config, "start"))
        return load_policy(start_model(run, config), config), "start"
    folder = newest_complete(run.checkpoints) if checkpoint == "newest" else run.checkpoints / checkpoint
    if folder is None or not folder.is_dir():
        raise RunDirectoryError(_nothing_to_play(run, config, checkpoint))
    return wrap_model(*load_model(folder, device=config.policy.device), config), folder.name


def _nothing_to_play(run: RunDirectory, config: Config, checkpoint: str) -> str:
    there = ["start"] if run.start.is_dir() or not config.warm_start.enabled else []
    there += [path.name for path in numbered(run.checkpoints)]
    if not there:
        return f"{run.path} has no policy yet; `hgpo train --resume {run.path}` goes on with it"
    return f"{run.path} has no checkpoint {checkpoint!r}; take --checkpoint {' or '.join(there)}"


def _demonstrations(
    tasks: Sequence[Task],
    suite: LimitedSuite,
    rules: RolloutRules,
    rng: np.random.Generator,
    config: Config,
    reporter: Reporter,
) -> list[tuple[Situation, str]]:
    expert, settings = suite.expert(), config.warm_start
    assert expert is not None, "training_suite has seen to it"
    chosen = tasks[: settings.demonstrations]
    shown: list[tuple[Situation, str]] = []
    with reporter.counting("demonstrations") as count:
        for first in range(0, len(chosen), 50):
            shown += demonstrate(chosen[first : first + 50], expert, rules, rng, noise=settings.noise)
            count(min(first + 50, len(chosen)), len(chosen))
    reporter.say(
        f"Warm start: {len(shown):,} steps demonstrated in {len(chosen)} training games, noise {settings.noise:g}"
    )
    return shown


def _untrained(config: Config, rules: RolloutRules, shown: Sequence[tuple[Situation, str]]) -> TransformersPolicy:
    """The model that is to imitate: a tiny one with the demonstrations' words, or the configured one."""
    if config.policy.model != "tiny":
        return load_policy(config.policy.model, config)
    from hgpo.policies.tiny import build_model, build_tokenizer

    tiny = config.policy.tiny
    template = rules.template
    tokenizer = build_tokenizer(
        text for situation, command in shown for text in (template.render(situation), template.respond(command))
    )
    model = build_model(
        len(tokenizer),
        hidden_size=tiny.hidden_size,
        layers=tiny.layers,
        heads=tiny.attention_heads,
        max_tokens=config.policy.max_prompt_tokens + config.policy.max_response_tokens,
        seed=config.run.seed,
    )
    return wrap_model(model.to(resolve_device(config.policy.device)), tokenizer, config)


def _imitate(
    policy: TransformersPolicy,
    shown: Sequence[tuple[Situation, str]],
    tasks: Sequence[Task],
    rules: RolloutRules,
    rng: np.random.Generator,
    config: Config,
    reporter: Reporter,
) -> dict[str, Any]:
    """Supervised fine-tuning into the target window, probed on training games that were not demonstrated."""
    settings = config.warm_start
    probe = tasks[settings.demonstrations : settings.demonstrations + settings.probe_games]

    def success() -> float:
        evaluation = evaluate(
            probe, policy, rules, split="probe", seeds=(config.run.seed,), temperature=config.evaluation.temperature
        )
        reporter.say(f"  warm start: success {percent(evaluation.success.mean)} on {len(probe)} games it was not shown")
        return evaluation.success.mean

    parameters = sum(parameter.numel() for parameter in policy.model.parameters())
    reporter.say(f"Imitating them with a model of {parameters:,} parameters")
    prompts, _ = fit_prompts([situation for situation, _ in shown], policy, rules.template)
    responses = [rules.template.respond(command) for _, command in shown]
    report = warm_start(policy, list(zip(prompts, responses, strict=True)), success, settings, rng)
    if report.stopped != "target":
        reporter.say(
            f"  the warm start ended ({report.stopped}) at {percent(report.success)}, outside its target of "
            f"{percent(settings.target_low)} to {percent(settings.target_high)}"
        )
    return {
        "stopped": report.stopped,
        "success": report.success,
        "supervised_updates": report.update,
        "parameters": parameters,
        "demonstrated_steps": len(shown),
        "probes": [[probe.update, probe.loss, probe.success] for probe in report.probes],
    }
