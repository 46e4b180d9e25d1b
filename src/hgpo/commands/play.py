"""``hgpo play``: a person in the agent's place."""

from __future__ import annotations

import argparse
import re
import sys

_NOT_PRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

DESCRIPTION = """\
Play one game in the terminal. Type a command and Enter; ? lists what is admissible, an empty line or Ctrl-D ends.

examples:
  hgpo play alfworld
  hgpo play alfworld --split valid_unseen --game 3
  hgpo play alfworld --option data_dir=~/alfworld/data --split valid_seen
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.description = DESCRIPTION
    parser.add_argument("environment", help="name, or package.module:factory")
    parser.add_argument("--split", help="which split (default: the first)")
    parser.add_argument("--game", type=int, default=0, help="which game of the split, from 0 (default: 0)")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the environment; repeatable"
    )


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb."""
    from hgpo.config import apply_override
    from hgpo.envs.registry import make

    options: dict[str, object] = {}
    for option in arguments.option:
        apply_override(options, option)
    suite = make(arguments.environment, **options)
    tasks = suite.tasks(arguments.split or suite.splits[0])
    if not 0 <= arguments.game < len(tasks):
        raise ValueError(f"--game {arguments.game}: the split has games 0 to {len(tasks) - 1}")
    environment = tasks[arguments.game].make()
    observation, info = environment.reset()
    _show(observation)
    while True:
        command = _ask()
        if not command:
            return 0
        if command == "?":
            _show("\n".join(info.get("admissible_commands") or ("This environment lists none.",)))
            continue
        observation, reward, terminated, truncated, info = environment.step(command)
        _show(observation)
        if terminated or truncated:
            _show(f"[{'won' if info.get('won') else 'over'}; reward {reward:g}]")
            return 0


def _ask() -> str:
    sys.stdout.write("> ")
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        sys.stdout.write("\n")
    return line.strip()


def _show(text: str) -> None:
    """Environment text is untrusted: control and direction characters never reach the terminal."""
    sys.stdout.write(_NOT_PRINTABLE.sub("�", text) + "\n")
