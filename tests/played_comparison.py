"""Plays the models of `data/comparison`: an expert behind a server, directly and through ReAct.

python tests/played_comparison.py FOLDER      writes FOLDER/direct.json and FOLDER/react.json
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from chat_server import Answer, ChatServer, Reply
from hgpo.cli.main import main
from hgpo.config import load_config
from hgpo.envs.registry import make
from served_experts import answer_from, ways

GAMES = 24
MAX_STEPS = 15
SETTINGS = (
    *("environment.options.train_games=4000", "environment.options.valid_seen_games=256"),
    *("environment.options.valid_unseen_games=256", "environment.options.seed=0"),
    *("environment.options.size={receptacles=[4,4],objects=[1,2],copies=2}", f"environment.max_steps={MAX_STEPS}"),
)
"""The games of `recipes/quickstart/hgpo.toml`."""
FORMS = {
    "direct": "<think>The way is known.</think><action>{}</action>",
    "react": "Thought: The way is known.\nAction: {}",
}


def play(folder: Path) -> list[str]:
    """Play the first games of the quickstart's panel, and give the commands that did it."""
    config = load_config(None, ["environment.name=alfworld", "policy.model=expert", *SETTINGS])
    suite = make("alfworld", **config.environment.options)
    known = ways(suite, "valid_unseen", max_steps=MAX_STEPS, count=GAMES, expert=suite.expert())
    commands = []
    for agent, form in FORMS.items():
        with ChatServer(counting_words(answer_from(known, form))) as server:
            words = ["eval", "expert", "--server", server.url, "--env", "alfworld", "--agent", agent]
            words += ["--games", str(GAMES), "-o", str(folder / f"{agent}.json"), *SETTINGS]
            if code := main([*words, "--quiet"]):
                raise ValueError(f"hgpo {shlex.join(words)} ended with {code}")
            commands.append(shlex.join(["hgpo", *words]))
    return commands


def counting_words(answer: Answer) -> Answer:
    """The same answers, whose tokens are the words that were said."""

    def counted(body: dict[str, Any]) -> Reply:
        reply = answer(body)
        completion = json.loads(reply.body)
        prompt = sum(len(message["content"].split()) for message in body["messages"])
        response = len(completion["choices"][0]["message"]["content"].split())
        completion["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": response,
            "total_tokens": prompt + response,
        }
        return replace(reply, body=json.dumps(completion).encode())

    return counted


if __name__ == "__main__":
    sys.stdout.write("\n".join(play(Path(sys.argv[1]))) + "\n")
