"""The environment: one case, played with tool calls."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from hgpo.envs.base import check_action
from hgpo.tool_calls import ToolCallError, parse_action
from hgpo_backoffice.cases import Case
from hgpo_backoffice.database import digest
from hgpo_backoffice.desk import POLICY
from hgpo_backoffice.expert import candidate_calls
from hgpo_backoffice.tools import SCHEMAS, call_tool

FIRST_TEXT = "A new case is open."


class BackofficeEnv:
    """One case. An action is a tool call as JSON, `{"tool": "get_order", "arguments": {"order_id": "w100"}}`.

    The observation is the tool's result as JSON. What cannot be carried out changes nothing and gives
    `{"error": "…"}`. Letter case of values is ignored. `close_case` ends the episode; the reward is then 1 if the
    database equals that of the task's solution and no policy was violated, else 0.

    `info` has the same keys at reset and at each step: `won`; `task`, the policies and the customer's message;
    `tools`, the JSON schemas; `admissible_commands`, calls whose arguments were shown, most of them wrong
    (`hgpo_backoffice.expert.candidate_calls`); `notes`, what was shown (`Desk.notes`), and `requests`, for experts and
    the compact template.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._desk = case.desk
        self._running = False

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start over. A case is deterministic: every seed gives the same start."""
        self._desk = self._case.desk
        self._running = True
        return FIRST_TEXT, self._info(won=False)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one call. Before the first reset and after the end of an episode it raises `RuntimeError`."""
        check_action(action, self._running)
        try:
            asked = parse_action(action)
            self._desk, result = call_tool(self._desk, asked.name, asked.arguments)
        except ToolCallError as error:
            result = {"error": f"no tool call: {error}"}
        closed = bool(self._desk.database.outcome)
        won = closed and not self._desk.violations and self._desk.database.digest() == self._case.solved
        self._running = not closed
        return json.dumps(result), float(won), closed, False, self._info(won=won)

    def state_key(self) -> str:
        """Digest of the database, of what is known of the customer, of violated policies, and of what was shown, which
        determines the commands that are offered.
        """
        desk = self._desk
        known = (desk.told, desk.verified, desk.failed, desk.violations, desk.opened, desk.searched)
        return digest([asdict(desk.database), desk.found, desk.mentioned, *map(sorted, known)])

    def identity(self) -> dict[str, Any]:
        """What manifests record: a digest of the database and the customer's answers at the beginning."""
        return {"game": digest([asdict(self._case.desk.database), dict(self._case.desk.answers)])}

    def _info(self, *, won: bool) -> dict[str, Any]:
        notes, requests = self._desk.notes(), [asdict(request) for request in self._case.requests]
        return {
            "won": won,
            "task": f"{POLICY}\n\nThe customer writes: {self._case.message}",
            "tools": SCHEMAS,
            "admissible_commands": candidate_calls(requests, notes),
            "notes": notes,
            "requests": requests,
        }
