"""`hgpo train`: a new run from a recipe, or the continuation of one."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import time
from pathlib import Path

from hgpo.cli import TRUST_HELP
from hgpo.config import Config, describe_settings, load_config, setting_values
from hgpo.config.recipes import recipe_names, starter_recipe, starter_settings, starters, written_settings
from hgpo.policies.backends import AUTO
from hgpo.runs.folder import open_run_directory, resume_command
from hgpo.runs.trust import allow_pickles, allow_settings, settings_to_trust
from hgpo.utils.text import visible_lines

DESCRIPTION = """\
Train an agent: collect groups of rollouts, compare their steps, update the policy, and evaluate it before and after on
tasks it has not seen. Everything goes to runs/<run.name>/.

examples:
  hgpo train quickstart            a tiny policy on household games, on a CPU
  hgpo train --env webshop         the same in shops: the recipe webshop-tiny
  hgpo train --env alfworld policy.model=Qwen/Qwen2.5-1.5B-Instruct
  hgpo train quickstart run.name=gigpo advantage.estimator=gigpo
  hgpo train quickstart run.name=presets advantage.options.preset=verl-agent
  hgpo train mine.toml             your own recipe; it may contain `extends = "quickstart"`
  hgpo train --resume runs/quickstart
  hgpo train quickstart --engine verl policy.device=cpu verl.agent_workers=1
  hgpo train --settings            list every setting with its default

progress lines, for about 15 of the updates (docs/reference/metrics.md explains the other figures):
  update 20/100   index of the update, and number of updates
  success         share of the update's training episodes that were won, at rollout.temperature
  reward          mean sum of an episode's training rewards
  KL              k3 estimate of the divergence from the start policy, if training.kl_coefficient > 0
  clip            share of response tokens without gradient because their ratio was clipped
  groups 12/4     mean size of a step's group at each level of the estimator: levels 0, 1, …, then the episode level
  tokens/s        prompt and response tokens per second of the update; then the estimated time to the last update

recipes that come with hgpo and with installed environments:
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    names = textwrap.fill(
        "  ".join(recipe_names()), 118, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
    parser.description = f"{DESCRIPTION}{names}\n"
    parser.add_argument(
        "recipe",
        nargs="?",
        metavar="RECIPE",
        help="a TOML file with settings, or the name of one of the recipes above",
    )
    parser.add_argument("overrides", nargs="*", metavar="section.name=value", help="settings that replace the recipe's")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--resume", type=Path, metavar="RUN", help="continue the run in this directory")
    mode.add_argument(
        "--continue",
        dest="go_on",
        action="store_true",
        help="start the run; continue it if it is unfinished; print its result if it is finished",
    )
    parser.add_argument(
        "--env",
        metavar="NAME",
        help="instead of a recipe: train a tiny policy on this environment without a download "
        f"({', '.join(sorted(starters()))}, or your own as package.module:factory); policy.model=MODEL selects a "
        "language model",
    )
    parser.add_argument(
        "--engine",
        choices=["built-in", "verl"],
        help="training engine: built-in (one machine) or verl (a Ray cluster; pip install 'hgpo[verl]')",
    )
    parser.add_argument("--settings", action="store_true", help="list every setting with its default and exit")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the complete settings (with --resume, the run's) and exit"
    )
    parser.add_argument("--trust", action="store_true", help=f"{TRUST_HELP}; also load its verl (pickle) checkpoints")
    parser.add_argument("--quiet", action="store_true", help="print errors only")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Stores the run directory in `arguments.run_directory` for the message after an interruption."""
    started = time.monotonic()
    if arguments.settings:
        print_settings()
        return 0
    if arguments.resume is not None:
        if arguments.recipe is not None:
            raise ValueError("--resume uses the settings of the run; omit the recipe and overrides")
        if arguments.engine is not None or arguments.env is not None:
            raise ValueError("--resume uses the engine and environment of the run; omit --engine and --env")
        if not arguments.dry_run:
            arguments.run_directory = arguments.resume
            return _resume(arguments.resume, arguments.quiet, started, trusted=arguments.trust)
    config = _given_settings(arguments) if arguments.resume is None else open_run_directory(arguments.resume)[1]
    if arguments.dry_run:
        if config.run.engine == "verl":
            from hgpo.integrations.verl.preflight import require_verl

            require_verl()
            from omegaconf import OmegaConf

            from hgpo.integrations.verl.launch import compose

            folder = None if arguments.resume is None else arguments.resume.resolve()
            text = str(OmegaConf.to_yaml(compose(config, run_directory=folder), resolve=True))
        else:
            from hgpo.config import dump_config

            text = dump_config(config)
        sys.stdout.write(visible_lines(text))
        return 0
    arguments.run_directory = config.run_directory
    if arguments.go_on and (config.run_directory / "config.toml").exists():
        stored = open_run_directory(config.run_directory)[1]
        if config.policy.backend == AUTO:  # a run stores the backend that "auto" selected when it began
            policy = config.policy.model_copy(update={"backend": stored.policy.backend})
            config = config.model_copy(update={"policy": policy})
        if stored != config:
            before, now = setting_values(stored), setting_values(config)
            names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
            raise ValueError(
                f"{config.run_directory} was made with other settings ({', '.join(names)}); choose another run.name, "
                f"delete it, or continue it as it is with {resume_command(config.run_directory)}"
            )
        return _resume(config.run_directory, arguments.quiet, started, trusted=arguments.trust, names_given=True)
    return _train(config, arguments.quiet, started)


def _given_settings(arguments: argparse.Namespace) -> Config:
    """The settings of a recipe or an environment, with the overrides."""
    recipe, overrides = _split(arguments)
    if arguments.env is not None:
        if recipe is not None:
            raise ValueError("give a recipe or --env; environment.name=… changes the environment of a recipe")
        if arguments.env in starters():
            recipe = starter_recipe(arguments.env, _model_of(overrides))
        else:
            overrides = [*starter_settings(arguments.env, _model_of(overrides)), *overrides]
    elif arguments.recipe is None:
        raise ValueError(
            "name a recipe (`hgpo train quickstart`; --help lists all), an environment (--env) or a run to --resume"
        )
    if arguments.engine is not None:
        overrides = [*overrides, f'run.engine="{arguments.engine}"']
    return load_config(recipe, overrides)


def print_settings() -> None:
    """Print every setting, its default and its meaning; names are folded and never cut."""
    from rich.console import Console
    from rich.table import Column, Table

    table = Table(*(Column(title, overflow="fold") for title in ("setting", "default", "what it is")))
    for row in describe_settings():
        table.add_row(*row)
    Console().print(table)


def _split(arguments: argparse.Namespace) -> tuple[Path | None, list[str]]:
    """The recipe or None, and the overrides; a first word of the form a.b=c is an override."""
    word: str | None = arguments.recipe
    if word is None:
        return None, arguments.overrides
    if "=" in word and not Path(word).exists():
        return None, [word, *arguments.overrides]
    return Path(word), arguments.overrides


def _model_of(overrides: list[str]) -> str:
    """The `policy.model` of the overrides; "tiny" if they do not set it."""
    policy = written_settings(None, overrides).get("policy")
    return str(policy.get("model", "tiny")) if isinstance(policy, dict) else "tiny"


def _train(config: Config, quiet: bool, started: float) -> int:
    from hgpo.evaluation.summary import show_summary
    from hgpo.utils.progress import Reporter

    _prepare_libraries()
    reporter = Reporter(quiet=quiet)
    if config.run.engine == "verl":
        from hgpo.integrations.verl.preflight import require_verl

        require_verl()
        from hgpo.integrations.verl.launch import train as train_on_verl

        run_directory = train_on_verl(config, reporter)
        if config.verl.evaluate_only:
            return 0
    else:
        from hgpo.assemble import train

        run_directory = train(config, reporter, started=started)
    show_summary(run_directory, reporter)
    return 0


def _resume(path: Path, quiet: bool, started: float, *, trusted: bool, names_given: bool = False) -> int:
    """Continue a run.

    Args:
        path: the run's folder.
        quiet: print errors only.
        started: when the command began, in seconds of `time.monotonic`.
        trusted: whether the user trusts the run (`--trust`).
        names_given: whether the user gave equal settings now, so that only the folder's files may be another's.
    """
    from hgpo.evaluation.summary import show_summary
    from hgpo.utils.progress import Reporter

    reporter = Reporter(quiet=quiet)
    run_directory, config = open_run_directory(path)
    if run_directory.complete:
        reporter.say(f"{path} is complete; delete it to run it again. Its result:")
    else:
        named = settings_to_trust(config, trains=True)
        allow_settings(path, named, trusted=trusted, say=reporter.say, names_given=names_given)
        _prepare_libraries()
        if config.run.engine == "verl":
            allow_pickles(path, trusted=trusted)
            from hgpo.integrations.verl.launch import resume as resume_on_verl

            resume_on_verl(path, reporter)
            if config.verl.evaluate_only:
                return 0
        else:
            from hgpo.assemble import resume

            resume(path, reporter, started=started)
    show_summary(run_directory, reporter)
    return 0


def _prepare_libraries() -> None:
    """Keep libraries quiet, unless the user has set their variables."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
