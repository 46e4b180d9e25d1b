"""`hgpo rollout`: episodes of a run's policy, stored step by step."""

from __future__ import annotations

import argparse
from pathlib import Path

from hgpo.cli import TRUST_HELP, amount, check_output

DESCRIPTION = """\
Play tasks with the policy of a run, --group-size rollouts of each, and store every step: prompt, response, action,
reward, tokens. `hgpo advantages` reads the file.

examples:
  hgpo rollout runs/quickstart -o rollouts.parquet
  hgpo rollout runs/quickstart --split valid_seen --games 32 --group-size 8 --temperature 1.0 -o seen.jsonl
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    parser.add_argument("-o", "--output", type=Path, required=True, help="file to write (.parquet or .jsonl)")
    parser.add_argument("--split", help="split to play (default: the run's training split)")
    parser.add_argument("--games", type=int, default=16, help="play the first N tasks of the split (default: 16)")
    parser.add_argument("--group-size", type=int, help="rollouts per task (default: the run's)")
    parser.add_argument("--temperature", type=amount, help="sampling temperature (default: the run's in training)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sampling (default: 0)")
    parser.add_argument("--checkpoint", default="newest", help="newest, start, or an update's number (default: newest)")
    parser.add_argument("--force", action="store_true", help="overwrite the output file")
    parser.add_argument("--trust", action="store_true", help=TRUST_HELP)
    parser.add_argument("--quiet", action="store_true", help="print errors only")


def run(arguments: argparse.Namespace) -> int:
    """Carry out the command."""
    _check_arguments(arguments)
    from hgpo.runs.folder import open_run_directory

    run_directory, config = open_run_directory(arguments.run)  # before PyTorch is loaded
    import dataclasses

    import numpy as np

    from hgpo.assemble import build_suite, rollout_rules
    from hgpo.config import check_names
    from hgpo.rollout.records import by_trajectory, write_rollouts
    from hgpo.rollout.runner import collect
    from hgpo.runs.trust import allow_settings, settings_to_trust
    from hgpo.training.load import RunPolicies, use_threads
    from hgpo.utils.progress import Reporter

    reporter = Reporter(quiet=arguments.quiet)
    allow_settings(arguments.run, settings_to_trust(config), trusted=arguments.trust, say=reporter.say)
    check_names(config)
    use_threads(config.run.threads)
    suite = build_suite(config.environment, config.evaluation)
    tasks = suite.tasks(arguments.split or config.environment.train_split)[: arguments.games]
    rules = rollout_rules(config.rollout, config.agent, config.environment.name)
    if arguments.temperature is not None:
        rules = dataclasses.replace(rules, temperature=arguments.temperature)
    policies = RunPolicies(run_directory, config.policy, config.warm_start.enabled, config.run.seed)
    policy, _ = policies.policy(arguments.checkpoint)
    group_size = config.rollout.group_size if arguments.group_size is None else arguments.group_size
    with reporter.counting("playing") as count:
        steps = collect(
            tasks,
            policy,
            rules,
            np.random.default_rng(arguments.seed),
            group_size=group_size,
            on_progress=count,
        )
    write_rollouts(arguments.output, steps)
    played = by_trajectory(steps)
    won = sum(trajectory[-1].won for trajectory in played)
    reporter.say(f"{len(steps):,} steps of {len(played)} episodes, {won} won, in {arguments.output}")
    return 0


def _check_arguments(arguments: argparse.Namespace) -> None:
    from hgpo.storage.schema import suffix_of

    for option, count in (("--games", arguments.games), ("--group-size", arguments.group_size)):
        if count is not None and count < 1:
            raise ValueError(f"{option} {count}: at least 1 must be played")
    if arguments.seed < 0:
        raise ValueError(f"--seed {arguments.seed}: give a whole number, 0 or more")
    suffix_of(arguments.output, written=True)
    check_output(arguments.output, overwrite=arguments.force)
