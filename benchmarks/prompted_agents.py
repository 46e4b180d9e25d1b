"""SmolLM2-135M-Instruct as it is, behind two real servers: prompted by every agent, in household games and in shops.

.venv/bin/python benchmarks/prompted_agents.py FOLDER --model MODEL --python .venv-vllm/bin/python --write
.venv/bin/python benchmarks/prompted_agents.py FOLDER --model MODEL --dry-run

`transformers serve` and vLLM's server are started in turn on 127.0.0.1, and asked by `hgpo eval --server`. What is
played is kept in FOLDER, so that the same command goes on where it was stopped. With `--write`, what is complete goes
to benchmarks/prompted_agents.json, and as a table to docs/agents.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dequantised import as_folder
from hgpo.files import write_text
from hgpo.runs.evaluation_files import StoredEvaluation, read_evaluation
from real_servers import SERVERS, free_port, serving, start_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "agents.md"
FOUND = ROOT / "benchmarks" / "prompted_agents.json"
BEGIN, END = "<!-- prompted agents: begin -->", "<!-- prompted agents: end -->"
AGENTS = ("direct", "react", "reflexion")
ENVIRONMENTS = {"alfworld": ["environment.options.size=small"], "webshop": ["environment.options.size=small"]}
"""Generated games, and generated shops."""
NAMES = {"alfworld": "household games", "webshop": "shops", "transformers": "`transformers serve`", "vllm": "vLLM"}
HEAD = ("played", "agent", "server", "success", "score", "steps", "valid actions", "tokens a game", "failed")


@dataclass(frozen=True, slots=True)
class Limits:
    """What is played and how long it may take; the same for every evaluation.

    Example: `Limits(games=24, max_steps=15, trials=2, response_tokens=96)`.
    """

    games: int
    max_steps: int
    trials: int
    response_tokens: int


@dataclass(frozen=True, slots=True)
class Asked:
    """One evaluation. Example: `Asked("vllm", "webshop", "react")`."""

    server: str
    environment: str
    agent: str

    def output(self, folder: Path) -> Path:
        """Its file."""
        return folder / f"{self.server}-{self.environment}-{self.agent}.json"

    def command(self, folder: Path, model: str, url: str, limits: Limits, at_once: int) -> list[str]:
        """The verb that plays it."""
        words = [sys.executable, "-m", "hgpo.cli", "eval", model, "--server", url, "--env", self.environment]
        words += ["--agent", self.agent, "--games", str(limits.games), "--at-once", str(at_once)]
        words += ["-o", str(self.output(folder)), *ENVIRONMENTS[self.environment]]
        words += [f"environment.max_steps={limits.max_steps}", f"policy.max_response_tokens={limits.response_tokens}"]
        words += ["policy.options.timeout=1800"]  # on a machine with other work
        return [*words, *([f"agent.options.trials={limits.trials}"] if self.agent == "reflexion" else [])]


def main() -> None:
    """Read the command line, play what is missing and write the table."""
    arguments = _arguments()
    limits = Limits(arguments.games, arguments.max_steps, arguments.trials, arguments.response_tokens)
    folder = arguments.folder.resolve()
    asked = [Asked(*one) for one in itertools.product(arguments.servers, arguments.environments, arguments.agents)]
    missing = [one for one in asked if not one.output(folder).exists()]
    if arguments.dry_run:
        dry_run(missing, folder, limits, arguments)
        return
    folder.mkdir(parents=True, exist_ok=True)
    check_limits(folder / "settings.json", {"model": arguments.model.name, **limits_of(limits)})
    model = as_folder(arguments.model, served_folder(arguments.model, folder))
    for server in () if arguments.show else arguments.servers:
        if todo := [one for one in missing if one.server == server]:
            play(server, todo, folder, model, limits, arguments)
    found = figures(asked, folder, model.name, limits)
    print(table(found))
    if arguments.write:
        write_text(FOUND, json.dumps(found, indent=1) + "\n")
        write_text(PAGE, with_table(PAGE.read_text(encoding="utf-8"), found))


def play(
    server: str, todo: list[Asked], folder: Path, model: Path, limits: Limits, arguments: argparse.Namespace
) -> None:
    """Start a server, and play through it what is missing."""
    port = free_port()
    start = start_of(
        server, arguments.python.absolute(), model, port, max_tokens=arguments.max_tokens, at_once=arguments.at_once
    )
    print(f"{server}: {shlex.join(start.command)}", flush=True)
    with serving(start, port, folder / f"{server}.log", seconds=arguments.start_seconds) as url:
        for one in todo:
            command = one.command(folder, model.name, url, limits, arguments.at_once)
            print(shlex.join(command), flush=True)
            subprocess.run(command, check=True)


def dry_run(missing: list[Asked], folder: Path, limits: Limits, arguments: argparse.Namespace) -> None:
    """Print the commands."""
    model, port = served_folder(arguments.model, folder), 8000
    for server, group in itertools.groupby(missing, key=lambda one: one.server):
        lengths = {"max_tokens": arguments.max_tokens, "at_once": arguments.at_once}
        start = start_of(server, arguments.python, model, port, **lengths)
        variables = " ".join(f"{key}={value}" for key, value in start.environment.items())
        print(f"cd {start.folder} && {variables} {shlex.join(start.command)} &")
        for one in group:
            words = one.command(folder, model.name, f"http://127.0.0.1:{port}/v1", limits, arguments.at_once)
            print(f"  {shlex.join(words)}")


def served_folder(model: Path, folder: Path) -> Path:
    """The model as the servers take it; a .gguf file becomes a folder of its name, less the kind of quantisation."""
    return folder / Path(model.stem).stem if model.suffix == ".gguf" else model.resolve()


def check_limits(path: Path, settings: dict[str, Any]) -> None:
    """Refuse a folder in which something else was played; evaluations that stay would not be of one kind."""
    if path.exists() and (there := json.loads(path.read_text(encoding="utf-8"))) != settings:
        raise SystemExit(f"{path.parent} holds evaluations with {there}, and now it would be {settings}: take another")
    write_text(path, json.dumps(settings) + "\n")


def limits_of(limits: Limits) -> dict[str, int]:
    """As they are stored."""
    return {name: getattr(limits, name) for name in Limits.__slots__}


def figures(asked: list[Asked], folder: Path, model: str, limits: Limits) -> dict[str, Any]:
    """Of the evaluations that are complete, as they go into the JSON file."""
    rows = [
        {"server": one.server, "environment": one.environment, "agent": one.agent, **row(read_evaluation(path))}
        for one in sorted(asked, key=lambda one: (one.environment, AGENTS.index(one.agent), one.server))
        if (path := one.output(folder)).exists()
    ]
    return {"model": model, "limits": limits_of(limits), "rows": rows}


def row(stored: StoredEvaluation) -> dict[str, Any]:
    """The figures of one evaluation."""
    success, episodes = stored.evaluation.success, stored.episodes_played
    assert stored.tokens is not None, "`hgpo eval -o` writes them"
    return {
        "success": {"mean": success.mean, "low": success.low, "high": success.high, "games": success.tasks},
        "success_by_trial": stored.success_by_trial,
        "score": stored.evaluation.score,
        "steps": stored.evaluation.episode_length,
        "valid_actions": stored.evaluation.valid_actions,
        "tokens_per_game": stored.tokens.total / episodes,
        "failed": stored.failed,
    }


def table(found: dict[str, Any]) -> str:
    """As Markdown, a row for each evaluation."""
    lines = [HEAD, ("---",) * len(HEAD), *(cells(one) for one in found["rows"])]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cells(one: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    low, mean, high = (f"{100 * one['success'][key]:.1f}" for key in ("low", "mean", "high"))
    return (
        NAMES[one["environment"]],
        f"`{one['agent']}`",
        NAMES[one["server"]],
        f"{mean} % [{low}, {high}] of {one['success']['games']}",
        f"{one['score']:.3f}",
        f"{one['steps']:.1f}",
        f"{100 * one['valid_actions']:.1f} %",
        f"{one['tokens_per_game']:,.0f}",
        str(one["failed"]),
    )


def with_table(page: str, found: dict[str, Any]) -> str:
    """The page with the table between its marks."""
    limits = found["limits"]
    caption = (
        f"{found['model']}, {limits['games']} games each, at most {limits['max_steps']} steps, answers of at most "
        f"{limits['response_tokens']} tokens, {limits['trials']} trials of `reflexion`; generated games and shops; "
        "success with 95 % intervals; a valid action is one whose answer has the agent's form."
    )
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{caption}\n\n{table(found)}\n\n{END}{rest.partition(END)[2]}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where evaluations, logs and the model lie")
    parser.add_argument("--model", type=Path, required=True, help="folder or .gguf file")
    parser.add_argument(
        "--python",
        type=Path,
        default=ROOT / ".venv-vllm" / "bin" / "python",
        help="of the environment with both servers (default: .venv-vllm's, which `make vllm-test` makes)",
    )
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--environments", nargs="+", choices=ENVIRONMENTS, default=list(ENVIRONMENTS))
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--games", type=int, default=24, help="of each evaluation (default: 24)")
    parser.add_argument("--max-steps", type=int, default=8, help="of a game (default: 8)")
    parser.add_argument("--trials", type=int, default=2, help="of a game by reflexion (default: 2)")
    parser.add_argument("--response-tokens", type=int, default=64, help="of an answer (default: 64)")
    parser.add_argument("--max-tokens", type=int, default=8192, help="of prompt and answer together (default: 8192)")
    parser.add_argument("--at-once", type=int, default=8, help="games under way (default: 8)")
    parser.add_argument("--start-seconds", type=float, default=1800, help="a server may take (default: 1800)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands of what is missing, and end")
    parser.add_argument("--show", action="store_true", help="play nothing: the table of what is there")
    parser.add_argument("--write", action="store_true", help="the JSON file and the page")
    return parser.parse_args()


if __name__ == "__main__":
    main()
