"""`hgpo eval`: held-out success of a run's policy."""

from __future__ import annotations

import argparse
from pathlib import Path

DESCRIPTION = """\
Play the policy of a run on a split: each game exactly once per seed. Prints success with a 95 % interval, per task
type, and stores it in RUN/evaluations/.

examples:
  hgpo eval runs/quickstart --split valid_unseen --seeds 123 456 789
  hgpo eval runs/quickstart --checkpoint start          the policy before training
  hgpo eval runs/quickstart --split valid_seen --temperature 0
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.description = DESCRIPTION
    parser.add_argument("run", type=Path, help="a run directory")
    parser.add_argument("--split", help="split to play (default: the run's evaluation split)")
    parser.add_argument("--seeds", type=int, nargs="+", help="the split is played once per seed (default: the run's)")
    parser.add_argument("--temperature", type=float, help="sampling temperature (default: the run's, 0.4)")
    parser.add_argument("--games", type=int, help="only the first so many games")
    parser.add_argument("--checkpoint", default="newest", help="newest, start, or an update's number (default: newest)")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb."""
    from hgpo.config import load_config
    from hgpo.runs.folder import open_run_directory

    run_directory, _ = open_run_directory(arguments.run)
    overrides = {
        "split": arguments.split,
        "seeds": arguments.seeds,
        "temperature": arguments.temperature,
        "games": arguments.games,
    }
    config = load_config(
        run_directory.config, [f"evaluation.{name}={value!r}" for name, value in overrides.items() if value is not None]
    )
    from hgpo.runs.assemble import build_suite
    from hgpo.runs.panel import evaluate_policy
    from hgpo.runs.progress import Reporter
    from hgpo.runs.summary import print_evaluation
    from hgpo.training.policies import load_checkpoint_policy
    from hgpo.training.threads import use_threads

    reporter = Reporter(quiet=arguments.quiet)
    use_threads(config)
    suite = build_suite(config)
    policy, checkpoint = load_checkpoint_policy(run_directory, config, arguments.checkpoint)
    settings = config.evaluation
    name = f"{settings.split}-{checkpoint}-t{settings.temperature:g}-s{'-'.join(map(str, settings.seeds))}"
    if arguments.games is not None:
        name += f"-first{arguments.games}"  # beside the whole panel's, not in its place
    evaluation = evaluate_policy(run_directory, name, policy, suite, config, reporter)
    if not arguments.quiet:
        print_evaluation(reporter.console, evaluation)
    reporter.say(f"Stored in {run_directory.evaluation(name)}")
    return 0
