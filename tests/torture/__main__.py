"""`python -m torture`: every theme for its share of the time, the counts, and each failure in full."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# Before torch is loaded, which is forked: threads do not survive that.
os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

from torture.outcomes import Tally, merged
from torture.themes import SHARES, THEMES

MINUTES = 15.0


def main() -> int:
    """Run the campaign; the status is 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument("themes", nargs="*", help=f"some of: {', '.join(THEMES)} (default: all)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"of the whole campaign (default: {MINUTES:g})")
    parser.add_argument("--seed", type=int, help="what is done in which order (default: drawn, and printed)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    arguments = parser.parse_args()
    names = arguments.themes or list(THEMES)
    if unknown := set(names) - set(THEMES):
        parser.error(f"no theme {', '.join(sorted(unknown))}; there are {', '.join(THEMES)}")
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, {arguments.minutes:g} minutes, {arguments.jobs} processes", flush=True)
    whole = sum(SHARES[name] for name in names)
    seconds = {name: 60 * arguments.minutes * SHARES[name] / whole for name in names}
    context = multiprocessing.get_context("fork")
    with (
        tempfile.TemporaryDirectory(prefix="torture-") as scratch,
        ProcessPoolExecutor(arguments.jobs, mp_context=context) as pool,
    ):
        waiting = [
            pool.submit(run_themes, Path(scratch, str(job)), f"{seed}/{job}", seconds) for job in range(arguments.jobs)
        ]
        parts = [job.result() for job in waiting]
    return report([merged(tallies) for tallies in zip(*parts, strict=True)])


def run_themes(folder: Path, seed: str, seconds: Mapping[str, float]) -> list[Tally]:
    """What one process does: cases of each theme until its time is over; at least one."""
    tallies = [Tally(name) for name in seconds]
    for tally in tallies:
        place = folder / tally.theme
        place.mkdir(parents=True)
        os.environ["XDG_CONFIG_HOME"] = str(place / "home")
        due = time.monotonic() + seconds[tally.theme]
        for outcome in THEMES[tally.theme](place, random.Random(f"{seed} {tally.theme}")):
            tally.add(outcome)
            if outcome.kind == "failed":
                print(f"FAILED {tally.theme}: {outcome.case}\n    {outcome.detail}", flush=True)
            if time.monotonic() > due:
                break
    return tallies


def report(tallies: Sequence[Tally]) -> int:
    """The table, and the status."""
    print(f"\n{'theme':<14}{'tried':>8}{'same':>8}{'error':>8}{'failed':>8}")
    for tally in tallies:
        counts = tally.counts
        print(f"{tally.theme:<14}{tally.tried:>8}{counts['same']:>8}{counts['error']:>8}{counts['failed']:>8}")
    return int(any(tally.failures for tally in tallies))


if __name__ == "__main__":
    sys.exit(main())
