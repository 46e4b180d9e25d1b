"""The reference engine's side of `benchmarks/alfworld.py`; runs where alfworld and textworld are installed.

Reads games and commands as JSON from standard input, writes figures and answers as JSON to standard output.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path

import textworld
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
from textworld.envs.pddl import PddlEnv


def main() -> None:
    plan = json.load(sys.stdin)
    play(plan[0]["file"], plan[0]["commands"][:1])  # imports and one-time set-up are not measured
    gc.collect()
    before = resident_mb()
    played = [play(game["file"], game["commands"]) for game in plan]
    gc.collect()
    figures = {
        "memory_mb": (resident_mb() - before) / len(plan),
        "played": [{key: value for key, value in game.items() if key != "environment"} for game in played],
    }
    print(json.dumps(figures))


def play(file: str, commands: list[str]) -> dict:
    before = time.process_time()
    environment = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)), shuffle=False)
    environment.load(file)
    loaded = time.process_time()
    state = environment.reset()
    started = time.process_time()
    answers, admissible = [state.feedback], []
    for command in commands:
        state, _, _ = environment.step(command)
        answers.append(state.feedback)
        admissible.append(state["admissible_commands"])
    return {
        "environment": environment,  # kept alive, to see how much memory it takes
        "load_seconds": loaded - before,
        "reset_seconds": started - loaded,
        "step_seconds": time.process_time() - started,
        "answers": answers,
        "admissible": admissible,
    }


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
