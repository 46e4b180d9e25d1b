"""Record what the reference engine answers, as digests that the native engine is tested against.

Runs in an environment of its own, never in the project's::

    python3.11 -m venv reference
    reference/bin/pip install alfworld==0.4.2 textworld==1.7.0
    tar -xf train_valid_seen.tar.xz -C games
    reference/bin/python tests/parity/alfworld_record.py traces games tests/parity/data --games 300
    reference/bin/python tests/parity/alfworld_record.py scenarios games tests/parity/data
    reference/bin/python tests/parity/alfworld_record.py starts games tests/parity/data

`traces` plays each drawn game three times (its walkthrough and two seeded traces with illegal and stale commands)
and writes one line per game to `alfworld_traces.jsonl`; `starts` writes the first text and commands of every
game to `alfworld_starts.txt`. Both go on where an earlier run stopped. `scenarios` plays the commands listed in
`alfworld_scenarios.jsonl`, each leading to something rare such as a sliced apple that is heated, and writes the
digests into the same file.

The reference re-parses its text grammar at each step and translates each problem four times per game. Here parsed
grammar and translated problems are kept; `--plain` leaves the reference as it is, to check that this changes nothing.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import random
from pathlib import Path

from alfworld_traces import TRACE_KINDS, Step, digest, game_key, play

SHUFFLE_SEED = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("traces", "scenarios", "starts"))
    parser.add_argument("games_folder", type=Path, help="folder with train/ and valid_seen/")
    parser.add_argument("output_folder", type=Path)
    parser.add_argument("--games", type=int, default=None, help="stop after this many games of the shuffled list")
    parser.add_argument("--plain", action="store_true", help="do not speed the reference up")
    arguments = parser.parse_args()

    if not arguments.plain:
        speed_up_reference()
    folder, output = arguments.games_folder, arguments.output_folder
    if arguments.what == "traces":
        record_traces(folder, arguments.games, output / "alfworld_traces.jsonl")
    elif arguments.what == "scenarios":
        record_scenarios(folder, output / "alfworld_scenarios.jsonl")
    else:
        record_starts(folder, arguments.games, output / "alfworld_starts.txt")


def record_traces(folder: Path, count: int | None, output: Path) -> None:
    done = {json.loads(line)["game"] for line in lines_of(output)}
    for game, file in drawn_games(folder, count):
        if game not in done:
            append(output, json.dumps({"game": game, **traces_of(file, game)}))


def record_starts(folder: Path, count: int | None, output: Path) -> None:
    done = {line.split()[0] for line in lines_of(output)}
    for game, file in drawn_games(folder, count):
        if game_key(game) not in done:
            append(output, f"{game_key(game)} {digest(start(load(file)))}")


def record_scenarios(folder: Path, output: Path) -> None:
    scenarios = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    for scenario in scenarios:
        environment = load(folder / scenario["game"] / "game.tw-pddl")
        steps = [start(environment), *(answer(environment, command) for command in scenario["commands"])]
        scenario["digests"] = "".join(map(digest, steps))
    output.write_text("".join(json.dumps(scenario) + "\n" for scenario in scenarios), encoding="utf-8")


def drawn_games(folder: Path, count: int | None) -> list[tuple[str, Path]]:
    files = sorted(folder.glob("*/*/*/game.tw-pddl"))
    random.Random(SHUFFLE_SEED).shuffle(files)
    return [(file.parent.relative_to(folder).as_posix(), file) for file in files[:count]]


def lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def append(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")


def traces_of(file: Path, game: str) -> dict[str, str]:
    walkthrough = json.loads(file.read_text(encoding="utf-8"))["walkthrough"]
    environment = load(file)
    result = {}
    for kind in TRACE_KINDS:
        first = start(environment)
        steps = play(game, kind, walkthrough, first, lambda command: answer(environment, command))
        result[kind] = digest(first) + "".join(digest(step) for _, step in steps)
    return result


def load(file: Path):
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs.pddl import PddlEnv

    environment = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)), shuffle=False)
    environment.load(str(file))
    return environment


def start(environment) -> Step:
    state = environment.reset()
    return state.feedback, state["admissible_commands"], state["won"], False


def answer(environment, command: str) -> Step:
    state, _, done = environment.step(command)
    return state.feedback, state["admissible_commands"], state["won"], done


def speed_up_reference() -> None:
    """Keep what the reference computes anew each time from the same text."""
    import fast_downward
    import textworld.envs.pddl.textgen as textgen
    from textworld.logic import Rule

    parse_query = functools.lru_cache(maxsize=None)(Rule.parse_conjunctive_query)
    Rule.parse_conjunctive_query = staticmethod(parse_query)

    parse_template = functools.lru_cache(maxsize=4096)(textgen._parse_and_convert)
    # The symbols of a parse carry the state they are used in, so each use needs its own.
    textgen._parse_and_convert = lambda *args, **kwargs: copy.deepcopy(parse_template(*args, **kwargs))

    translate = functools.lru_cache(maxsize=1)(fast_downward.pddl2sas)
    # The second translation only serves to ask the planner for a new plan, which no trace does.
    fast_downward.pddl2sas = lambda domain, problem, verbose=False, optimize=False: translate(domain, problem)


if __name__ == "__main__":
    main()
