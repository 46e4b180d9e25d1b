"""Prompt templates that are texts with named placeholders, such as the file that `agent.template` names.

A placeholder is replaced by its value as it stands: there are no expressions, attributes or indexes, and what an
environment or a model wrote is not searched for placeholders. `{{` and `}}` are braces. A text may have sections, each
after a line with its name in brackets:

    [first]     the prompt of the first step; without sections the text is the prompt of every step
    [later]     the prompt of all other steps
    [past]      each remembered step in {history}
    [action]    each action in {actions}

A file is read once, before a run begins (`hgpo.config.load_config`); the settings then have its text, not its path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from hgpo.agents.prompts import COMPACT, REASONING, AgentContext, Template
from hgpo.utils.text import did_you_mean

SUFFIX = ".txt"
_PROMPT = ("task", "observation", "step", "steps_taken", "history", "history_steps", "actions")
PLACEHOLDERS: Mapping[str, tuple[str, ...]] = {
    "first": _PROMPT,
    "later": _PROMPT,
    "past": ("step", "observation", "action"),
    "action": ("action",),
}
"""Section -> the placeholders that it may have."""
_PAST = "[Step {step}] observation: {observation}\n[Step {step}] action: {action}"
_ACTION = "- {action}"
_HEADING = re.compile(rf"^\[({'|'.join(PLACEHOLDERS)})\][^\S\n]*(?:\n|\Z)", re.MULTILINE)
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def is_text(template: str) -> bool:
    """Whether a value of `agent.template` is the text itself: it has placeholders, and names have no braces."""
    return "{" in template


def is_file(template: object) -> bool:
    """Whether a value of `agent.template` is the path of a file, not yet read."""
    return isinstance(template, str) and not is_text(template) and template.endswith(SUFFIX)


def name_or_text(template: str) -> str:
    """Check a value of `agent.template` without reading files; `ValueError` for a path or an invalid text."""
    if is_file(template):
        raise ValueError(f"{template!r} is a path, which only a recipe or a command may name; give the file's text")
    if is_text(template):
        TextTemplate(template)
    return template


def label(template: str) -> str:
    """A value of `agent.template` in messages."""
    return "(a file's text)" if is_text(template) else repr(template)


def read_text_template(path: Path) -> str:
    """The text of a file.

    Raises:
        ValueError: the file cannot be read, or `TextTemplate` rejects its text; the message names the file.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        TextTemplate(text)
    except OSError as error:
        raise ValueError(f"agent.template: {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # also an encoding error
        raise ValueError(f"agent.template: {path}: {error}") from error
    return text


class TextTemplate:
    """Prompts from a text. If a prompt has `<action>`, responses have tags, else the whole response is the action."""

    def __init__(self, text: str, tagged: Template = REASONING) -> None:
        """Read the text.

        Args:
            text: see the module's first lines.
            tagged: reads and writes tagged responses.

        Raises:
            ValueError: a placeholder is unknown, a brace is single, a section is missing or repeated, or a prompt lacks
                the observation.
        """
        self._sections = _sections_of(text)
        replies = tagged if any("<action>" in self._sections[name] for name in ("first", "later")) else COMPACT
        self.parse, self.respond = replies.parse, replies.respond

    def render(self, context: AgentContext) -> str:
        """The user message. As in the published prompts, `help` is not among its actions."""
        first = context.step - len(context.history) + 1
        past = (
            _fill(self._sections["past"], {"step": str(number), "observation": seen.strip(), "action": done})
            for number, (seen, done) in enumerate(context.history, start=first)
        )
        offered = (action for action in context.admissible if action != "help")
        values = {
            "task": context.task,
            "observation": context.observation.strip(),
            "step": str(context.step + 1),
            "steps_taken": str(context.step),
            "history": "\n".join(past),
            "history_steps": str(len(context.history)),
            "actions": "\n".join(_fill(self._sections["action"], {"action": action}) for action in offered).strip(),
        }
        return _fill(self._sections["later" if context.step else "first"], values)


def _fill(section: str, values: Mapping[str, str]) -> str:
    return _PIECE.sub(lambda piece: values[piece[1]] if piece[1] else piece[0][0], section)


def _sections_of(text: str) -> dict[str, str]:
    before, *parts = _HEADING.split(text)
    names, texts = parts[::2], [part.removesuffix("\n") for part in parts[1::2]]
    found = (
        dict(zip(names, texts, strict=True)) if names else dict.fromkeys(("first", "later"), text.removesuffix("\n"))
    )
    if names and before.strip():
        raise ValueError(
            f"{before.strip()[:60]!r} is in no section: the first line has to be one of {_listed(PLACEHOLDERS)}"
        )
    if len(found) < len(names):
        raise ValueError(f"a section is repeated: {_listed(names)}")
    if missing := [name for name in ("first", "later") if name not in found]:
        raise ValueError(f"the section [{missing[0]}] is missing; a text with sections needs [first] and [later]")
    for name, section in found.items():
        _check(section, PLACEHOLDERS[name], f" of [{name}]" if names else "")
    for name in ("first", "later"):
        if "observation" not in [piece[1] for piece in _PIECE.finditer(found[name])]:
            raise ValueError(f"{{observation}} is missing{f' in [{name}]' if names else ''}")
    return {"past": _PAST, "action": _ACTION, **found}


def _check(section: str, known: Iterable[str], where: str) -> None:
    for piece in _PIECE.finditer(section):
        if piece[0] in ("{", "}") or (piece[1] is not None and piece[1] not in known):
            meant = did_you_mean(piece[1] or "", list(known))
            raise ValueError(
                f"{piece[0]!r} is no placeholder{where}{meant}{' Known' if meant else '; known'}: "
                f"{', '.join(f'{{{name}}}' for name in known)}. For braces, write {{{{ and }}}}"
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"[{name}]" for name in names)
