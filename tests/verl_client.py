"""verl's own client of rollout servers, with a load balancer and a server that live in this process. Needs verl."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any

from verl.workers.rollout.llm_server import LLMServerClient


class Handle:
    """Stands for a Ray actor: `handle.name.remote(...)` calls the method and gives what can be awaited."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._actor, name)
        return SimpleNamespace(remote=lambda *arguments, **named: _begun(method(*arguments, **named)))


def _begun(found: Any) -> asyncio.Future[Any]:
    """What Ray gives back at once: the call is under way, whether anybody awaits it or not."""
    if inspect.isawaitable(found):
        return asyncio.ensure_future(found)
    answer = asyncio.get_running_loop().create_future()
    answer.set_result(found)
    return answer


class Balancer:
    """Has one server; remembers what it was asked, and told, for which episode."""

    def __init__(self, server: Any) -> None:
        self._server = Handle(server)
        self.acquired: list[str] = []
        self.released: list[str] = []

    def acquire_server(self, request_id: str) -> tuple[str, Handle]:
        self.acquired.append(request_id)
        return "only", self._server

    def release_server(self, server_id: str, request_id: str) -> Any:
        self.released.append(request_id)

    def require_acquire_fields(self) -> list[str]:
        return []

    def require_release_fields(self) -> list[str]:
        return ["request_id"]


def client_of(balancer: Balancer) -> LLMServerClient:
    rollout = SimpleNamespace(full_determinism=False, name="vllm")
    config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
    return LLMServerClient(config, Handle(balancer))
