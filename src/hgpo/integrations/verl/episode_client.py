"""One rollout server for a whole episode. Needs verl.

verl's client asks the load balancer before every request and tells it after every answer: two calls between processes
beside the one that matters. An episode's turns go to one server anyway, where its prefixes are cached, so it is
enough to ask before its first turn and to tell after its last. What the balancer counts are then the live episodes of
each server, waiting for their environments or not.
"""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.llm_server import LLMServerClient


class EpisodeClient(LLMServerClient):  # type: ignore[misc]
    """verl's client, for one episode; `leave` when it is over.

    Args:
        client: the one that all episodes of this process share; it knows the load balancer.
    """

    def __init__(self, client: LLMServerClient) -> None:
        super().__init__(client.config, client._load_balancer)
        self._client = client
        self._server: tuple[str, Any] | None = None
        self._episode: str | None = None

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:
        if self._server is None:
            self._server = await self._client._acquire_server(request_id, **extra)
            self._episode = request_id
        return self._server

    def _release_server(self, server_id: str, request_id: str | None = None) -> None:
        """Not after every answer."""

    def leave(self) -> None:
        """Tell the load balancer that no more requests come."""
        if self._server is not None:
            self._client._release_server(self._server[0], request_id=self._episode)
            self._server = None
