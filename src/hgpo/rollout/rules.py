"""How episodes are played, besides tasks and policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hgpo.agents import Template


class RolloutError(RuntimeError):
    """An environment or policy broke its contract; the message names the task and the step."""


@dataclass(frozen=True, slots=True)
class RolloutRules:
    """What turns an episode into training data.

    Attributes:
        template: how a situation is told and an answer read.
        history_length: K, remembered steps; None: all of them.
        temperature: of the sampling.
        reward: "won" pays 1 on the step that wins, once; "environment" pays what the environment does.
        reward_scale: factor on either.
        invalid_action_penalty: noted for every ill-formed response.
        state: what stands for the state when steps are compared, see `state_keys`: "observation", as published;
            "observation_and_commands" where one text, such as "Nothing happens.", is seen in many states;
            "published_g2po", that of G2PO's code for household games.
    """

    template: Template
    history_length: int | None
    temperature: float
    reward: str = "won"
    reward_scale: float = 1.0
    invalid_action_penalty: float = 0.0
    state: str = "observation"

    def training_reward(self, reward: float, *, first_win: bool) -> float:
        """What a step is paid. `first_win`: its episode is won by it, and was not before."""
        return self.reward_scale * (float(first_win) if self.reward == "won" else reward)

    def check_start(self, task_id: str, info: Mapping[str, Any]) -> None:
        """`RolloutError` where `state` asks for commands and the environment lists none."""
        if self.state != "observation" and not info.get("admissible_commands"):
            raise RolloutError(
                f"task {task_id!r}: the environment lists no admissible commands, which rollout.state = {self.state!r} "
                "needs; use 'observation'"
            )
