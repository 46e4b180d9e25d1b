"""A server that speaks OpenAI's chat protocol on this machine, well or badly, in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Reply:
    """What the server sends. `drop` closes the connection instead; `wait` is in seconds, before either."""

    body: bytes = b"{}"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0
    drop: bool = False


Answer = Callable[[dict[str, Any]], Reply]


def says(text: str | None, *, prompt_tokens: int = 100, response_tokens: int = 10, finish: str = "stop") -> Reply:
    """An ordinary completion."""
    completion = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": response_tokens,
            "total_tokens": prompt_tokens + response_tokens,
        },
    }
    return Reply(json.dumps(completion).encode())


def fails(status: int, **headers: str) -> Reply:
    """An error as servers send it."""
    body = json.dumps({"error": {"message": f"this is status {status}", "type": "test", "code": None}}).encode()
    return Reply(body, status, headers)


class ChatServer:
    """Answers `/v1/chat/completions` by `answer(body)`. Use as a context; `stop` and `start` kill it and bring it back.

    Attributes:
        asked: bodies of all requests, in the order of their coming.
        most_at_once: most requests under way at one time.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.most_at_once = 0
        self._under_way = 0
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def __enter__(self) -> ChatServer:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self) -> None:
        self._server = self._run(asyncio.start_server(self._talk, "127.0.0.1", self._port))
        self._port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Close the port and every connection."""
        self._run(self._stop())

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await asyncio.sleep(0)

    def _run(self, work: Awaitable[Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()  # type: ignore[arg-type]

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                headers = dict(
                    line.decode().lower().split(": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line
                )
                body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))))
                self.keys.append(headers.get("authorization", ""))
                self.asked.append(body)
                self._under_way += 1
                self.most_at_once = max(self.most_at_once, self._under_way)
                try:
                    reply = self._answer(body)
                    await asyncio.sleep(reply.wait)
                finally:
                    self._under_way -= 1
                if reply.drop:
                    writer.transport.abort()
                    return
                lines = {"content-type": "application/json", "content-length": str(len(reply.body)), **reply.headers}
                writer.write(f"HTTP/1.1 {reply.status} X\r\n".encode())
                writer.write("".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode() + b"\r\n")
                writer.write(reply.body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # whoever asked is gone
        finally:
            self._open.discard(writer)
            writer.close()
