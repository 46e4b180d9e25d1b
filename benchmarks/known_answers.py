"""A server of OpenAI's chat protocol with prepared answers, in a separate process: benchmarks measure only the client.

The seed of a request, which no other request has, determines its answer.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def serve(answers: Mapping[int, str]) -> Iterator[str]:
    """Run a server that answers requests with these seeds, and others with 404; yields the server's address."""
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({str(seed): text for seed, text in answers.items()}) + "\n")
            process.stdin.flush()
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


def completion(text: str) -> dict[str, Any]:
    """A chat completion with this text."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "known",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020},
    }


async def main() -> None:
    """Read the answers from standard input, print the port, and answer until the process is ended."""
    replies = {int(seed): _reply("200 OK", completion(text)) for seed, text in json.loads(sys.stdin.readline()).items()}
    unknown = _reply("404 Not Found", {"error": {"message": "nobody has foreseen this request"}})

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
                asked = json.loads(await reader.readexactly(length))
                writer.write(replies.get(asked.get("seed"), unknown))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has disconnected
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _reply(status: str, content: Mapping[str, Any]) -> bytes:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


if __name__ == "__main__":
    asyncio.run(main())
