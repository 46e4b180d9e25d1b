"""The policy before the first update: a given or tiny model that imitates demonstrations, and the frozen reference."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hgpo.agents import AgentContext
from hgpo.config import PolicySettings, TrainingSettings, WarmStartSettings
from hgpo.envs.base import Expert, Task
from hgpo.evaluation.result_files import percent
from hgpo.messages import Conversation, as_text
from hgpo.policies.base import AnyPolicy, release_memory
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.loading import resolve_device
from hgpo.policies.weights import Precision, cast, computes_in_bfloat16, has_adapter, merge_adapter
from hgpo.rollout.prompts import RolloutRules, fit_prompts
from hgpo.rollout.records import by_trajectory
from hgpo.rollout.runner import collect, demonstrate
from hgpo.runs.checkpoints import write_checksums
from hgpo.runs.folder import write_json
from hgpo.training.checkpoint import saving
from hgpo.training.load import limits_of, load_language_model, make_backend_policy, with_adapter
from hgpo.training.warm_start import WarmStart, WarmStartReport
from hgpo.utils.files import delete_folder, publish
from hgpo.utils.progress import Reporter
from hgpo.utils.text import counted

# Combined with the run's seed. The second pass of the task order draws the same numbers for an unrelated purpose; any
# other value would change every measured run.
_WARM_START_SEED = 1
_TASKS_TOGETHER = 50


def reference_model(start: LanguageModel, trained: LanguageModel, precision: Precision = "auto") -> Any:
    """The frozen reference of the KL penalty.

    A model with an adapter is its own reference: with the adapter switched off it equals the start model. Otherwise the
    reference is the start model, or a copy if the start model itself is trained, in the data type of the computation.

    Args:
        start: the policy before the first update.
        trained: the trained model, which may be the same object.
        precision: arithmetic of the forward passes.
    """
    if has_adapter(trained.model):
        return trained.model
    model = copy.deepcopy(start.model) if start is trained else start.model
    if computes_in_bfloat16(precision, model.device, model.config):
        model = cast(model, torch.bfloat16)
    return model.requires_grad_(False)


@dataclass(frozen=True, slots=True)
class StartBuilder:
    """Makes a run's folder `start/`: a model imitates an expert's demonstrations until success is in the target window.

    Attributes:
        settings: settings of the warm start.
        policy: settings of the model that imitates.
        tasks: tasks of the training split: demonstrations first, then probe tasks.
        expert: plays the demonstrations.
        rules: rules of the episodes.
        training: settings that limit the memory of forward and backward passes.
        seed: the run's seed.
        temperature: sampling temperature of the probes.
        reporter: prints progress.
    """

    settings: WarmStartSettings
    policy: PolicySettings
    tasks: Sequence[Task]
    expert: Expert
    rules: RolloutRules
    training: TrainingSettings
    seed: int
    temperature: float
    reporter: Reporter

    def build(self, folder: Path) -> None:
        """Write the folder; it appears complete or not at all."""
        partial = folder.with_name("start.partial")
        delete_folder(partial)
        rng = np.random.default_rng([self.seed, _WARM_START_SEED])
        given = None
        if self.policy.model != "tiny":  # before the demonstrations: a model that cannot be loaded fails at once
            loaded = load_language_model(self.policy.model, self.policy)
            given = with_adapter(loaded, self.policy.lora, seed=self.seed)
        demonstrations = self._demonstrate(rng)
        language_model = given or self._tiny_model(demonstrations)
        report = self._imitate(language_model, demonstrations, rng)
        with saving(folder):
            merge_adapter(language_model.model).save_pretrained(partial)  # the reference has no new adapter
            language_model.tokenizer.save_pretrained(partial)
            write_json(partial / "warm_start.json", report)
            write_checksums(partial)
            publish(partial, folder)

    def _demonstrate(self, rng: np.random.Generator) -> list[tuple[AgentContext, str]]:
        noise = self.settings.noise
        chosen = self.tasks[: self.settings.demonstrations]
        steps: list[tuple[AgentContext, str]] = []
        with self.reporter.counting("demonstrations") as count:
            for first in range(0, len(chosen), _TASKS_TOGETHER):
                together = chosen[first : first + _TASKS_TOGETHER]
                steps += demonstrate(together, self.expert, self.rules, rng, noise=noise)
                count(first + len(together), len(chosen))
        self.reporter.say(
            f"Warm start: {len(steps):,} demonstrated steps in {len(chosen)} training tasks, noise {noise:g}"
        )
        return steps

    def _tiny_model(self, demonstrations: Sequence[tuple[AgentContext, str]]) -> LanguageModel:
        """A tiny model whose vocabulary is the words of the demonstrations."""
        from hgpo.policies.tiny import build_model, build_tokenizer

        policy, template = self.policy, self.rules.template
        tokenizer = build_tokenizer(
            text
            for context, command in demonstrations
            for text in (as_text(template.render(context)), template.respond(command))
        )
        model = build_model(
            len(tokenizer),
            hidden_size=policy.tiny.hidden_size,
            layers=policy.tiny.layers,
            heads=policy.tiny.attention_heads,
            max_tokens=policy.max_prompt_tokens + policy.max_response_tokens,
            seed=self.seed,
        )
        return LanguageModel.of(model.to(resolve_device(policy.device)), tokenizer, limits_of(policy))

    def _imitate(
        self,
        language_model: LanguageModel,
        demonstrations: Sequence[tuple[AgentContext, str]],
        rng: np.random.Generator,
    ) -> dict[str, Any]:
        """Fine-tune on the demonstrations, probe on other training tasks; return the content of warm_start.json."""
        settings, model = self.settings, language_model.model
        parameters = sum(parameter.numel() for parameter in model.parameters())
        self.reporter.say(f"Imitating the demonstrations with a model of {parameters:,} parameters")
        policy = make_backend_policy(self.policy, language_model)
        release_memory(policy)
        updates_taken = 0

        with self.reporter.counting("imitating") as count:

            def show_update(updates: int, loss: float) -> None:
                nonlocal updates_taken
                updates_taken = updates
                count(updates, settings.max_updates, f"loss {loss:.3f}")

            def show_probe(done: int, tasks: int) -> None:
                count(updates_taken, settings.max_updates, f"probing: {done} of {tasks} tasks")

            def success() -> float:
                policy.take_weights(model)
                return self._success(policy, show_probe)

            warm_start = WarmStart(language_model, settings, rng, self.training)
            pairs = self._pairs(demonstrations, language_model)
            report = warm_start.run(pairs, success, show_update, self._say_rollback)
        if report.stopped != "target":
            self._say_missed_target(report)
        return {
            "stopped": report.stopped,
            "success": report.success,
            "supervised_updates": report.update,
            "parameters": parameters,
            "demonstrated_steps": len(demonstrations),
            "probes": [[probe.update, probe.loss, probe.success] for probe in report.probes],
        }

    def _success(self, policy: AnyPolicy, on_progress: Callable[[int, int], None]) -> float:
        """The success rate of `policy` on the probe tasks; frees the policy's memory afterwards."""
        first = self.settings.demonstrations
        tasks = self.tasks[first : first + self.settings.probe_games]
        rules, rng = replace(self.rules, temperature=self.temperature), np.random.default_rng(self.seed)
        steps = collect(tasks, policy, rules, rng, on_progress=on_progress)
        release_memory(policy)
        won = float(np.mean([trajectory[-1].won for trajectory in by_trajectory(steps)]))
        probed = counted(len(tasks), "task")
        self.reporter.say(f"  warm start: success {percent(won)} on {probed} without demonstrations")
        return won

    def _say_rollback(self, won: float, update: int, interval: int) -> None:
        self.reporter.say(
            f"  {percent(won)} exceeds warm_start.target_high = {percent(self.settings.target_high)}, which leaves "
            f"too little to learn: back to supervised update {update}; next evaluation after "
            f"{counted(interval, 'update')}"
        )

    def _say_missed_target(self, report: WarmStartReport) -> None:
        settings = self.settings
        reasons = {
            "overshoot": "a single update jumps over the target",
            "budget": f"warm_start.max_updates = {settings.max_updates} are used up",
        }
        self.reporter.say(
            f"  the warm start ended ({report.stopped}: {reasons[report.stopped]}) with the model of supervised "
            f"update {report.update}, at {percent(report.success)}, outside its target of "
            f"{percent(settings.target_low)} to {percent(settings.target_high)}"
        )

    def _pairs(
        self, demonstrations: Sequence[tuple[AgentContext, str]], language_model: LanguageModel
    ) -> list[tuple[Conversation, str]]:
        """The demonstrations as (prompt, response)."""
        template = self.rules.template
        prompts = fit_prompts([context for context, _ in demonstrations], language_model.encoder, template.render)
        responses = [template.respond(command) for _, command in demonstrations]
        return [(prompt.text, response) for prompt, response in zip(prompts, responses, strict=True)]
