"""`hgpo play`: a person in the agent's place."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

from hgpo.envs.base import Env, Info
from hgpo.visible import visible_lines

if TYPE_CHECKING:
    from hgpo.rollout.episode import Episode

DESCRIPTION = """\
Play one game in the terminal. Type a command and Enter; ? lists what is admissible, an empty line or Ctrl-D ends.

With --browser the same game can also be played in a browser on this machine, at the address that is printed; in the
terminal, an action that does nothing (say, "look") shows what the browser did. Only WebShop has pages for a browser.

examples:
  hgpo play alfworld
  hgpo play alfworld --split valid_unseen --game 3
  hgpo play alfworld --option data_dir=~/alfworld/data --split valid_seen
  hgpo play webshop --option size=medium --option observation_mode=text
  hgpo play webshop --browser
  hgpo play webshop --option data_dir=~/webshop/data --split test --browser 8000
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
    parser.add_argument(
        "--browser",
        type=int,
        nargs="?",
        const=0,
        metavar="PORT",
        help="serve the game as plain HTML on 127.0.0.1 as well (default: any free port)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb."""
    from hgpo.agents import get_template
    from hgpo.config import apply_override
    from hgpo.envs.limit import LimitedEnv
    from hgpo.envs.registry import make
    from hgpo.rollout.episode import Episode, EpisodeIds
    from hgpo.rollout.rules import RolloutRules

    options: dict[str, object] = {}
    for option in arguments.option:
        apply_override(options, option)
    suite = make(arguments.environment, **options)
    tasks = suite.tasks(arguments.split or suite.splits[0])
    if not 0 <= arguments.game < len(tasks):
        raise ValueError(f"--game {arguments.game}: the split has games 0 to {len(tasks) - 1}")
    task = tasks[arguments.game]
    environment = task.make()
    played = LimitedEnv(environment, sys.maxsize, task.id)  # checks what a user's own environment returns
    rules = RolloutRules(get_template("compact"), history_length=0, temperature=0.0, reward="environment")
    episode = Episode(EpisodeIds(task.id, f"{task.id}#person", task.id, task.kind), rules, *played.reset())
    if arguments.browser is None:
        return _play(episode, played)
    with _served(environment, arguments.browser, arguments.environment) as address:
        _show(f"[also at {address}]")
        return _play(episode, played)


def _play(episode: Episode, environment: Env) -> int:
    task = episode.situation().task
    if task and task not in episode.observation:
        _show(f"[task: {task}]")
    _show(episode.observation)
    while True:
        command = _ask()
        if not command:
            return 0
        if command == "?":
            _show("\n".join(_admissible(episode.info)))
            continue
        transition = episode.advance(command, environment.step(command))
        _show(episode.observation)
        if episode.ended:
            _show(f"[{'won' if transition.won else 'over'}; reward {transition.reward:g}]")
            return 0


def _admissible(info: Info) -> list[str]:
    """What can be typed. A search bar takes any words, so no environment lists them one by one."""
    search = ["search[words]"] if info.get("available_actions", {}).get("has_search_bar") else []
    return [*search, *(info.get("admissible_commands") or ())] or ["This environment lists none."]


@contextmanager
def _served(environment: Env, port: int, name: str) -> Iterator[str]:
    """The running game's address in a browser, as long as the context lasts."""
    serve = getattr(environment, "serve", None)
    if serve is None:
        raise ValueError(f"--browser: {name} has no pages for a browser; leave it out to play in the terminal")
    if not 0 <= port < 1 << 16:
        raise ValueError(f"--browser {port}: ports are 1 to 65535, or 0 for any free one")
    try:
        opened = serve(port)
    except OSError as error:
        raise ValueError(
            f"--browser {port}: {error.strerror}; choose another port, or leave it out for any free one"
        ) from error
    with opened as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.running_address
        finally:
            server.shutdown()
            thread.join()


def _ask() -> str:
    sys.stdout.write("> ")
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        sys.stdout.write("\n")
    return line.strip()


def _show(text: str) -> None:
    """Environment text is untrusted: control and direction characters never reach the terminal."""
    sys.stdout.write(visible_lines(text) + "\n")
