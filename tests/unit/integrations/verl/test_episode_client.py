"""One server for an episode. Runs where verl is installed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

from hgpo.integrations.verl.agent_loop import EpisodeClient
from verl_client import Balancer, client_of


class Server:
    async def generate(self, *, prompt_ids: list[int], **_: Any) -> Any:
        return SimpleNamespace(token_ids=prompt_ids, log_probs=[0.0], extra_fields={"global_steps": 3})


async def ask(client: EpisodeClient, turns: int) -> list[Any]:
    sampling = {"temperature": 1.0}
    return [await client.generate("episode", prompt_ids=[turn], sampling_params=sampling) for turn in range(turns)]


def test_the_balancer_is_asked_once_and_told_once() -> None:
    async def play() -> list[Any]:
        client = EpisodeClient(client_of(balancer))
        answers = await ask(client, turns=3)
        assert balancer.released == []
        client.leave()
        client.leave()
        return answers

    balancer = Balancer(Server())
    answers = asyncio.run(play())

    assert [answer.token_ids for answer in answers] == [[0], [1], [2]]
    assert answers[0].extra_fields == {"global_steps": 3, "min_global_steps": 3, "max_global_steps": 3}
    assert balancer.acquired == balancer.released == ["episode"]


def test_an_episode_that_asked_nothing_tells_nothing() -> None:
    balancer = Balancer(Server())
    EpisodeClient(client_of(balancer)).leave()
    assert balancer.acquired == balancer.released == []
