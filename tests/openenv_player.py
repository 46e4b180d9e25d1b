"""Plays a served environment with OpenEnv's own client; run by a Python that has it, with nothing of this project."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from openenv.core.generic_client import GenericEnvClient


async def play(address: str, task: int, commands: list[str]) -> dict[str, Any]:
    """What the client was told: the texts, rewards, the end, and the state."""
    async with GenericEnvClient(base_url=address) as client:
        result = await client.reset(task=task, split="train")
        texts, rewards = [result.observation["text"]], []
        for command in commands:
            result = await client.step({"text": command})
            texts.append(result.observation["text"])
            rewards.append(result.reward)
        state = await client.state()
        try:
            await client.step({"text": "inventory"})
            refusal = ""
        except RuntimeError as error:
            refusal = str(error)
    return {"texts": texts, "rewards": rewards, "done": result.done, "state": state, "refusal": refusal}


async def play_all(address: str, scripts: list[list[str]]) -> list[dict[str, Any]]:
    """Every script in a session of its own, all at once."""
    return await asyncio.gather(*(play(address, task, commands) for task, commands in enumerate(scripts)))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(play_all(sys.argv[1], json.load(sys.stdin)))))
