"""The model card of a trained policy: its base model, training settings and evaluation results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w

from hgpo.agents.text_template import is_text
from hgpo.config import AgentSettings, Config, as_tree
from hgpo.evaluation.eval_history import evaluation_names
from hgpo.evaluation.result_files import percent, stored_evaluation
from hgpo.runs.folder import RunDirectory, RunDirectoryError, lost_evaluations, resume_command
from hgpo.utils.text import counted

_HUB_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(/[\w.-]+)?", re.ASCII)
_ABSOLUTE = re.compile(r"[/~].*")  # of one line: a template given as text may start like a path
_UNSAFE = re.compile(r"[^\w .,:/()+-]")


def model_card(run: RunDirectory, config: Config, checkpoint: str) -> str:
    """The text of the exported folder's README.md, as the Hugging Face hub shows it.

    Names of task types and of the model are untrusted: characters that could be markup are removed.

    Args:
        run: the run that trained the policy.
        config: the run's settings.
        checkpoint: "start" or an update's number.

    Raises:
        RunDirectoryError: an evaluation of the run is damaged or missing.
    """
    updates = "before the first update" if checkpoint == "start" else f"after {counted(int(checkpoint), 'update')}"
    model = config.policy.model
    is_local = Path(model).is_absolute() or Path(model).exists()
    is_public = model != "tiny" and not is_local and _HUB_NAME.fullmatch(model)
    base = f"base_model: {json.dumps(model)}\n" if is_public else ""
    model = Path(model).name if is_local else model
    published = _without_folders(as_tree(config))
    published["policy"]["model"] = model
    published["run"]["directory"] = "runs"
    start = "a tiny model built for it" if model == "tiny" else f"`{_plain(model)}`"
    environment, estimator = _plain(config.environment.name), _plain(config.advantage.estimator)
    evaluations = "\n".join(_evaluations(run))
    settings = "\n".join(f"    {line}" for line in tomli_w.dumps(published).splitlines())
    return f"""\
---
library_name: transformers
pipeline_tag: text-generation
{base}tags: [agent, reinforcement-learning, hgpo]
---
# {_plain(config.run.name)}

A policy for `{environment}`, {updates} with the estimator `{estimator}`, trained by hgpo from {start}.

## Use

    from transformers import AutoModelForCausalLM, AutoTokenizer
    model, tokenizer = (kind.from_pretrained(FOLDER) for kind in (AutoModelForCausalLM, AutoTokenizer))

{_prompts(config.agent)}

## Success

{evaluations}
## Settings

{settings}
"""


def _evaluations(run: RunDirectory) -> Iterator[str]:
    """A table of every evaluation that the run has."""
    if lost := lost_evaluations(run):
        raise RunDirectoryError(
            f"{lost[0]} is missing, but {run.summary.name} lists it: restore it from a copy, or delete "
            f"{run.summary} and repeat the evaluation with {resume_command(run.path)}"
        )
    if not (names := evaluation_names(run)):
        yield from ("It was not evaluated.", "")
        return
    yield "| evaluation | split | task type | tasks | temperature | seeds | success | 95 % interval |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in names:
        evaluation = stored_evaluation(run, name)
        assert evaluation is not None, "its file was listed"
        for kind, rate in [("all", evaluation.success), *evaluation.by_task_type.items()]:
            cells = (
                *map(_plain, (name, evaluation.split, kind)),
                str(rate.tasks),
                f"{evaluation.temperature:g}",
                ", ".join(map(str, evaluation.seeds)),
                percent(rate.mean),
                f"{percent(rate.low)} to {percent(rate.high)}",
            )
            yield f"| {' | '.join(cells)} |"
    yield ""


def _prompts(agent: AgentSettings) -> str:
    """What the policy's prompts contain."""
    if agent.name != "direct":
        return f"Prompts are those of the agent `{_plain(agent.name)}` with the settings `agent` below."
    own = is_text(agent.template)
    template = "the template `agent.template` below" if own else f"hgpo's template `{_plain(agent.template)}`"
    return f"Prompts are those of {template} with the last {agent.history_length} steps, one user message each."


def _without_folders(value: Any) -> Any:
    """The settings with absolute paths, which would reveal the user's folders, cut to their last part."""
    if isinstance(value, dict):
        return {name: _without_folders(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_folders(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and _ABSOLUTE.fullmatch(value) else value


def _plain(text: str) -> str:
    """Text from elsewhere without anything that markup is made of."""
    return _UNSAFE.sub("", text)
