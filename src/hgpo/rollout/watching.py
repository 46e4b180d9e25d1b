"""One step of an episode as people read it in a terminal. Everything in it is untrusted text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hgpo.visible import visible_lines

MOST_SHOWN = 2_000
"""Characters of one text; a response may be endless."""


def step_text(step: Mapping[str, Any], *, whole_prompt: bool = False) -> str:
    """What was asked, answered, done and seen.

    Args:
        step: columns of a stored step, or the fields of a `StepRecord`; what is missing is left out.
        whole_prompt: show all of the prompt in place of its length.
    """
    prompt = str(step.get("prompt") or "")
    parts = [f"── step {step['step'] + 1} " + "─" * 50]
    if whole_prompt:
        parts.append(_indented("asked", prompt, most=len(prompt)))
    elif prompt:
        parts.append(f"asked     {len(prompt):,} characters (--prompts shows them)")
    parts.append(_indented("answer", step.get("response")))
    fault = f"   [ill-formed: {step['fault']}]" if step.get("fault") else ""
    parts.append(_indented("action", f"{step.get('action')}{fault}"))
    parts.append(_indented("seen", step.get("next_observation")))
    parts.append(f"reward    {step['reward']:g}{_end(step)}")
    return "\n".join(part for part in parts if part)


def _end(step: Mapping[str, Any]) -> str:
    if step.get("won"):
        return ", won"
    if step.get("terminated"):
        return ", over"
    return ", cut at the step limit" if step.get("truncated") else ""


def _indented(name: str, text: Any, most: int = MOST_SHOWN) -> str:
    """A text beside its name; empty where there is none."""
    shown = visible_lines(str(text or "")).strip()
    if not shown:
        return ""
    if len(shown) > most:
        shown = f"{shown[:most]}… ({len(shown):,} characters)"
    return f"{name:<10}" + shown.replace("\n", "\n" + " " * 10)
