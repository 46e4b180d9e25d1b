"""Checks of the user's prompt templates: errors, and results of another type, are errors that name the template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hgpo.agents.prompts import AgentContext, ParsedAction, Template
from hgpo.messages import Conversation, Message
from hgpo.plugins import BREAKS
from hgpo.utils.text import describe_error, safe_repr


@dataclass(frozen=True, slots=True)
class CheckedTemplate:
    """A template and its name in messages. Methods raise ValueError for errors and wrong results of the template."""

    template: Template
    name: str

    def render(self, context: AgentContext) -> Conversation:
        """The prompt."""
        prompt: Any = self._called("render", context)
        if not isinstance(prompt, str) and not (
            isinstance(prompt, tuple) and all(isinstance(turn, Message) for turn in prompt)
        ):
            raise self._wrong("render", "text or a tuple of messages", prompt)
        return prompt

    def parse(self, response: str) -> ParsedAction:
        """The action in a response."""
        parsed = self._called("parse", response)
        if not isinstance(parsed, ParsedAction):
            raise self._wrong("parse", "a ParsedAction", parsed)
        return parsed

    def respond(self, action: str) -> str:
        """A response with the action; checked to be the inverse of `parse` but for upper and lower case."""
        response = self._called("respond", action)
        if not isinstance(response, str):
            raise self._wrong("respond", "text", response)
        if (read := self.parse(response).action).casefold() != action.casefold():
            raise ValueError(
                f"{self.name}: parse(respond({action!r})) has the action {read!r}, but respond has to be the inverse "
                "of parse"
            )
        return response

    def _called(self, method: str, argument: Any) -> Any:
        try:
            return getattr(self.template, method)(argument)
        except BREAKS as error:
            raise ValueError(f"{self.name}: {describe_error(f'{method}()', error, below=__file__)}") from error

    def _wrong(self, method: str, wanted: str, returned: object) -> ValueError:
        return ValueError(f"{self.name}: {method}() has to return {wanted}, and returned {safe_repr(returned)}")
