"""The frozen start policy that the divergence penalty measures from."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hgpo.agents import AgentContext
from hgpo.assemble import rollout_rules
from hgpo.config import Config, TrainingSettings
from hgpo.envs.base import Task
from hgpo.envs.wrappers import LimitedSuite
from hgpo.evaluation.result_files import percent
from hgpo.messages import Conversation, as_text
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.loading import resolve_device
from hgpo.policies.lora import has_adapter, merge_adapter
from hgpo.policies.weights import computes_in_bfloat16
from hgpo.rollout.prompts import RolloutRules, fit_prompts
from hgpo.rollout.records import outcomes
from hgpo.rollout.runner import collect, demonstrate
from hgpo.runs.folder import RunDirectory, write_json
from hgpo.training.checkpoint import saving
from hgpo.training.load import limits_of, load_language_model, run_policy, with_adapter
from hgpo.training.warm_start import warm_start
from hgpo.utils.checksums import seal
from hgpo.utils.files import flush, flush_tree
from hgpo.utils.progress import Reporter


def reference_model(start: LanguageModel, trained: LanguageModel, settings: TrainingSettings) -> Any | None:
    """What `update_policy` takes as its reference; None where no divergence is measured.

    A model with an adapter is its own: without the adapter it is what it began as. Otherwise the start is held a second
    time, in the type that it computes in.

    Args:
        start: the policy before the first update.
        trained: what is trained, which may be that very object.
        settings: whether a reference is needed.
    """
    if not settings.kl_coefficient:
        return None
    if has_adapter(trained.model):
        return trained.model
    model = copy.deepcopy(start.model) if start is trained else start.model
    if computes_in_bfloat16(settings.precision, model.device, model.config):
        model = model.to(torch.bfloat16)
    return model.requires_grad_(False)


# The start of a run: a given model, or a tiny one that is built here, taught by demonstrations.


# Beside the run's seed. The second pass of the task order (task_order) draws the same numbers, to uses that never meet;
# any other value would change every run that was measured.
_WARM_START_SEED = 1


def prepare_start(run: RunDirectory, config: Config, suite: LimitedSuite, reporter: Reporter) -> None:
    """Make `start/` if the run needs one and does not have it yet; it appears whole or not at all."""
    if not config.warm_start.enabled or run.start.exists():
        return
    partial = run.start.with_name("start.partial")
    shutil.rmtree(partial, ignore_errors=True)
    rng = np.random.default_rng([config.run.seed, _WARM_START_SEED])
    rules = rollout_rules(config)
    tasks = suite.tasks(config.environment.train_split)
    given = _given(config)  # first: what cannot be loaded is said before games are played for it
    shown = _demonstrations(tasks, suite, rules, rng, config, reporter)
    language_model = given or _tiny(config, rules, shown)
    report = _imitate(language_model, shown, tasks, rules, rng, config, reporter)
    with saving(run.start):
        merge_adapter(language_model.model).save_pretrained(partial)  # the reference is the model without a new adapter
        language_model.tokenizer.save_pretrained(partial)
        write_json(partial / "warm_start.json", report)
        seal(partial)
        flush_tree(partial)
        os.replace(partial, run.start)
        flush(run.start.parent)


def _demonstrations(
    tasks: Sequence[Task],
    suite: LimitedSuite,
    rules: RolloutRules,
    rng: np.random.Generator,
    config: Config,
    reporter: Reporter,
) -> list[tuple[AgentContext, str]]:
    expert, settings = suite.expert(), config.warm_start
    assert expert is not None, "training_suite has seen to it"
    chosen = tasks[: settings.demonstrations]
    shown: list[tuple[AgentContext, str]] = []
    with reporter.counting("demonstrations") as count:
        for first in range(0, len(chosen), 50):
            shown += demonstrate(chosen[first : first + 50], expert, rules, rng, noise=settings.noise)
            count(min(first + 50, len(chosen)), len(chosen))
    reporter.say(
        f"Warm start: {len(shown):,} steps demonstrated in {len(chosen)} training games, noise {settings.noise:g}"
    )
    return shown


def _given(config: Config) -> LanguageModel | None:
    """The configured model; None where a tiny one is to be built."""
    if config.policy.model == "tiny":
        return None
    return with_adapter(load_language_model(config.policy.model, config), config)


def _tiny(config: Config, rules: RolloutRules, shown: Sequence[tuple[AgentContext, str]]) -> LanguageModel:
    """A tiny model that knows the demonstrations' words."""
    from hgpo.policies.tiny import build_model, build_tokenizer

    tiny = config.policy.tiny
    template = rules.template
    tokenizer = build_tokenizer(
        text for context, command in shown for text in (as_text(template.render(context)), template.respond(command))
    )
    model = build_model(
        len(tokenizer),
        hidden_size=tiny.hidden_size,
        layers=tiny.layers,
        heads=tiny.attention_heads,
        max_tokens=config.policy.max_prompt_tokens + config.policy.max_response_tokens,
        seed=config.run.seed,
    )
    return LanguageModel.of(model.to(resolve_device(config.policy.device)), tokenizer, limits_of(config))


def _imitate(
    language_model: LanguageModel,
    shown: Sequence[tuple[AgentContext, str]],
    tasks: Sequence[Task],
    rules: RolloutRules,
    rng: np.random.Generator,
    config: Config,
    reporter: Reporter,
) -> dict[str, Any]:
    """Supervised fine-tuning into the target window, probed on training games that were not demonstrated."""
    settings = config.warm_start
    probe = tasks[settings.demonstrations : settings.demonstrations + settings.probe_games]
    parameters = _say_size(language_model, reporter)
    policy = run_policy(config, language_model)
    taken = 0

    with reporter.counting("imitating") as count:

        def learned(updates: int, loss: float) -> None:
            nonlocal taken
            taken = updates
            count(updates, settings.max_updates, f"loss {loss:.3f}")

        def success() -> float:
            policy.take_weights(language_model.model)
            steps = collect(
                probe,
                policy,
                replace(rules, temperature=config.evaluation.temperature),
                np.random.default_rng(config.run.seed),
                on_progress=lambda done, games: count(taken, settings.max_updates, f"probing: {done} of {games} games"),
            )
            won = float(np.mean([episode.won for episode in outcomes(steps)]))
            reporter.say(f"  warm start: success {percent(won)} on {len(probe)} games it was not shown")
            return won

        pairs = _pairs(shown, language_model, rules)
        report = warm_start(language_model, pairs, success, settings, config.training, rng, learned)
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


def _say_size(language_model: LanguageModel, reporter: Reporter) -> int:
    """How many parameters there are; says it, and how many of them are trained."""
    sizes = [(int(one.numel()), one.requires_grad) for one in language_model.model.parameters()]
    parameters, trained = sum(size for size, _ in sizes), sum(size for size, learns in sizes if learns)
    share = "" if trained == parameters else f", of which {trained:,} are trained"
    reporter.say(f"Imitating them with a model of {parameters:,} parameters{share}")
    return parameters


def _pairs(
    shown: Sequence[tuple[AgentContext, str]], language_model: LanguageModel, rules: RolloutRules
) -> list[tuple[Conversation, str]]:
    """The demonstrations as (prompt, response)."""
    prompts = fit_prompts([context for context, _ in shown], language_model.encoder, rules.template.render)
    responses = [rules.template.respond(command) for _, command in shown]
    return [(prompt.text, response) for prompt, response in zip(prompts, responses, strict=True)]
