"""From a model's response, which is untrusted text, to the action for the environment."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_ACTION_CHARACTERS = 512
_CJK = re.compile("[\u4e00-\u9fff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """An action read from a response.

    Attributes:
        action: the action for the environment.
        valid: whether the response follows the format.
        fault: the reason why it does not, in a few words; "" exactly if `valid` is true.
    """

    action: str
    valid: bool
    fault: str = ""


def parse_tagged(response: str, *, fallback_characters: int) -> ParsedAction:
    """The published rules: the lower-cased text of the first `<action>…</action>`.

    Invalid when the tag pair is missing, when the `<think>…</think>` pair is missing, or when the response holds
    a CJK character. Without a tag the last `fallback_characters` of the response are the action (30 for ALFWorld, 20
    for WebShop in the published recipe).
    """
    lowered = response.lower()
    text, closed, _ = lowered.partition("<action>")[2].partition("</action>")  # a pattern would search from every tag
    if not closed:
        return ParsedAction(clean_action(lowered[-fallback_characters:]), False, "no <action></action>")
    action = clean_action(text)
    if "<think>" not in lowered or "</think>" not in lowered:
        return ParsedAction(action, False, "no <think></think>")
    if _CJK.search(response):
        return ParsedAction(action, False, "CJK characters")
    return ParsedAction(action, True)


def parse_bare(response: str) -> ParsedAction:
    """For models that respond with the command alone: the whole response, lower-cased, is the action."""
    if len(response) > MAX_ACTION_CHARACTERS:
        return ParsedAction(clean_action(response[:MAX_ACTION_CHARACTERS].lower()), False, "too long")
    action = clean_action(response.lower())
    if not action:
        return ParsedAction("", False, "empty")
    if _CONTROL.search(response.strip()):
        return ParsedAction(action, False, "control characters")
    return ParsedAction(action, True)


def clean_action(text: str) -> str:
    """One line without control characters, with single spaces and of bounded length."""
    return " ".join(_CONTROL.sub(" ", text[:MAX_ACTION_CHARACTERS]).split())
