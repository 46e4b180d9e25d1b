"""`hgpo play`: play a task yourself, or watch a policy or stored steps."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hgpo.cli import TRUST_HELP, add_option_argument, parse_given
from hgpo.envs.base import Info
from hgpo.utils.text import counted, visible_lines

DESCRIPTION = """\
Play one task in the terminal, or watch a policy play it.

If you name an environment, you play: type a command and Enter; ? lists the admissible commands, an empty line or
Ctrl-D ends the episode.

If you name a run, or a model with --policy, that policy plays. Each step is printed with the prompt's length, the
response, the action, the observation and the reward. Agents are those of `hgpo eval`. A file of stored steps is printed
in the same way.

examples:
  hgpo play alfworld
  hgpo play alfworld --split valid_unseen --game 3
  hgpo play alfworld --option data_dir=~/alfworld/data --split valid_seen
  hgpo play webshop --option size=medium --option observation_mode=text
  hgpo play runs/quickstart --game 3                                  a run's policy
  hgpo play alfworld --policy HuggingFaceTB/SmolLM2-135M-Instruct --agent react --prompts
  hgpo play webshop --policy my-model --server http://127.0.0.1:8000/v1 --agent reflexion
  hgpo play react.rollouts.jsonl --game 2                             the third of the stored games
"""

MOST_SHOWN = 2_000
"""Maximum number of characters shown of one text; a response may be very long."""
_OF_POLICY = ("server", "agent", "temperature")
_WIDTH = 13  # of the names of a step's parts


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.description = DESCRIPTION
    parser.add_argument(
        "what",
        metavar="ENVIRONMENT|RUN|FILE",
        help="an environment (name, or package.module:factory), a run, or a file of steps",
    )
    parser.add_argument("--split", help="split (default: the first; for a run, its evaluation split)")
    parser.add_argument("--game", type=int, default=0, help="which game, from 0 (default: 0)")
    add_option_argument(parser, "environment")
    parser.add_argument("--policy", metavar="MODEL", help="a model that plays the environment")
    parser.add_argument("--server", metavar="URL", help="base address of the server that has the model")
    parser.add_argument("--agent", help="agent: direct, react, reflexion, tools, …")
    parser.add_argument("--temperature", type=float, help="sampling temperature of the policy (default: 0.4)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the policy's sampling (default: 0)")
    parser.add_argument("--trust", action="store_true", help=TRUST_HELP)
    parser.add_argument("--prompts", action="store_true", help="show prompts in full")


def run(arguments: argparse.Namespace) -> int:
    """Carry out the command."""
    from hgpo.runs.load_settings import is_run
    from hgpo.storage.schema import SUFFIXES

    if arguments.seed < 0:
        raise ValueError(f"--seed {arguments.seed}: give a whole number, 0 or more")
    if Path(arguments.what).suffix.lower() in SUFFIXES:
        _refuse(arguments, ("split", "option", "policy", *_OF_POLICY), "stored steps are shown")
        return _replay(arguments)
    if is_run(arguments.what):
        _refuse(arguments, ("policy", "server"), "a run plays; name an environment instead of the run")
        return _watch(arguments, arguments.what, environment=None)
    if Path(arguments.what).is_dir():
        raise ValueError(f"{arguments.what} is not a run: {Path(arguments.what, 'config.toml')} does not exist")
    if arguments.policy is not None:
        return _watch(arguments, arguments.policy, environment=arguments.what)
    _refuse(arguments, (*_OF_POLICY, "prompts"), "you play; add --policy MODEL")
    return _play_in_person(arguments)


def _refuse(arguments: argparse.Namespace, names: Sequence[str], when: str) -> None:
    """Raise a `ValueError` if an option of these names is given, because nothing uses it."""
    given = {name: getattr(arguments, name) for name in names}
    # 0 == False, but --temperature 0 is given.
    if unused := [f"--{name}" for name, value in given.items() if value is not False and value not in (None, [])]:
        raise ValueError(f"{', '.join(unused)}: nothing uses these if {when}")


def _replay(arguments: argparse.Namespace) -> int:
    """Print a stored game, step by step."""
    from hgpo.storage.discover import find_step_files
    from hgpo.storage.reading import read_batch
    from hgpo.storage.tables import python_rows

    stored = read_batch(find_step_files(Path(arguments.what))[0])
    names = stored.batch.labels["trajectory"]
    if not 0 <= arguments.game < len(names):
        raise ValueError(f"--game {arguments.game}: the file has games 0 to {len(names) - 1}")
    begin, end = stored.batch.trajectory_start[arguments.game : arguments.game + 2]
    places = stored.batch.order[begin:end]
    rows = python_rows(stored.table.take(places), stored.path)
    _show(f"[{names[arguments.game]}; game {arguments.game} of {len(names)}]\n{rows[0]['observation']}")
    # As the estimators read them: in the file, they may have other names, be text, or mean something else.
    ends = {"won": stored.batch.success, "truncated": stored.batch.truncated}
    for number, (row, place) in enumerate(zip(rows, places, strict=True)):
        last = number == len(rows) - 1
        read = {name: last and column is not None and bool(column[place]) for name, column in ends.items()}
        sys.stdout.write(step_text(row | read | {"step": number}, whole_prompt=arguments.prompts) + "\n")
    return 0


def _watch(arguments: argparse.Namespace, source: str, *, environment: str | None) -> int:
    """Let a policy play, and print each step."""
    from hgpo.runs.load_settings import as_overrides, settings_for

    given = {
        "agent.name": arguments.agent,
        "evaluation.split": arguments.split,
        "evaluation.temperature": arguments.temperature,
    }
    overrides = [*as_overrides(given), *(f"environment.options.{option}" for option in arguments.option)]
    config = settings_for(
        source,
        environment=environment,
        server=arguments.server,
        overrides=overrides,
        trusted=arguments.trust,
        say=_show,
    )
    import asyncio
    from dataclasses import asdict

    from hgpo.assemble import agent_rules, build_agent, build_suite, open_policy
    from hgpo.rollout.eval_tasks import EvalTask, Player, play_task
    from hgpo.rollout.records import StepRecord
    from hgpo.utils.progress import Reporter

    def show(step: StepRecord) -> None:
        if step.step == 0:
            _show(f"[{step.trajectory}]\n{step.observation}")
        sys.stdout.write(step_text(asdict(step), whole_prompt=arguments.prompts) + "\n")
        sys.stdout.flush()

    tasks = build_suite(config.environment, config.evaluation).tasks(config.evaluation.split)
    task = tasks[_game(arguments.game, len(tasks))]
    policy = open_policy(source, config, warn=Reporter().warn, say=_show).policy
    agent = build_agent(config.agent, config.environment.name)
    rules = agent_rules(config.rollout, agent, config.evaluation.temperature)
    player = Player(policy, agent, rules, on_step=show)
    end = asyncio.run(play_task(EvalTask(task, arguments.game, arguments.seed), player)).summary
    outcome = end.failure or end.context_full or ("won" if end.won else "lost")
    _show(f"[{outcome}, {counted(len(end.trials), 'trial')}, {counted(end.counts.steps, 'step')}]")
    return 1 if end.failure else 0


def _game(chosen: int, games: int) -> int:
    if not 0 <= chosen < games:
        raise ValueError(f"--game {chosen}: the split has games 0 to {games - 1}")
    return chosen


def _play_in_person(arguments: argparse.Namespace) -> int:
    """The user types the commands."""
    from hgpo.envs.registry import make
    from hgpo.envs.wrappers import LimitedSuite

    suite = LimitedSuite(make(arguments.what, **parse_given(arguments.option)), sys.maxsize)
    tasks = suite.tasks(arguments.split or suite.splits[0])
    environment = tasks[_game(arguments.game, len(tasks))].make()
    observation, info = environment.reset()
    won = False
    goal = str(info.get("task") or "")
    if goal and goal not in observation:
        _show(f"[task: {goal}]")
    _show(observation)
    while command := _ask():
        if command == "?":
            _show("\n".join(_admissible(info)))
            continue
        observation, reward, terminated, truncated, info = environment.step(command)
        won = won or info["won"]
        _show(observation)
        if terminated or truncated:
            _show(f"[{'won' if won else 'over'}; reward {reward:g}]")
            break
    return 0


def _admissible(info: Info) -> list[str]:
    """The commands that the user may type. A search takes any words, so it is listed as a pattern."""
    available = info.get("available_actions")  # WebShop's, or another environment's, of any type
    search = ["search[words]"] if isinstance(available, Mapping) and available.get("has_search_bar") else []
    return [*search, *(info.get("admissible_commands") or ())] or ["This environment lists none."]


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


def step_text(step: Mapping[str, Any], *, whole_prompt: bool = False) -> str:
    """A step as text: prompt, response, action, next observation.

    Args:
        step: columns of a stored step, or the fields of a `StepRecord`; missing ones are left out.
        whole_prompt: show the whole prompt instead of its length.
    """
    prompt = str(step.get("prompt") or "")
    parts = [f"── step {step['step'] + 1} " + "─" * 50]
    if whole_prompt:
        parts.append(_indented("prompt", prompt, most=len(prompt)))
    elif prompt:
        parts.append(_indented("prompt", f"{len(prompt):,} characters (--prompts shows them)"))
    parts.append(_indented("response", step.get("response")))
    fault = f"   [ill-formed: {step['fault']}]" if step.get("fault") else ""
    action = step.get("action")
    parts.append(_indented("action", f"{'' if action is None else action}{fault}"))
    parts.append(_indented("observation", step.get("next_observation")))
    parts.append(f"{'reward':<{_WIDTH}}{step['reward']:g}{_end(step)}")
    return "\n".join(part for part in parts if part)


def _end(step: Mapping[str, Any]) -> str:
    if step.get("won"):
        return ", won"
    if step.get("terminated") is True:  # elsewhere the name may mean something else
        return ", over"
    return ", cut at the step limit" if step.get("truncated") else ""


def _indented(name: str, text: Any, most: int = MOST_SHOWN) -> str:
    """A name and its text in two columns; "" without a text."""
    shown = "" if text is None else visible_lines(str(text)).strip()
    if not shown:
        return ""
    if len(shown) > most:
        shown = f"{shown[:most]}… ({len(shown):,} characters)"
    return f"{name:<{_WIDTH}}" + shown.replace("\n", "\n" + " " * _WIDTH)
