"""Train with several estimators from one start, paired by seed: which of them can be told apart, and by how much.

    python benchmarks/campaign.py run FOLDER --at-once 2              # ten seeds of eight estimators; hours
    python benchmarks/campaign.py run FOLDER training.updates=60 --estimators gigpo atd    # some of it, shorter
    python benchmarks/campaign.py show                                # what there is
    python benchmarks/campaign.py page [--check]                      # the table of docs/choosing.md

A finished training is a line of benchmarks/campaign.json, and is never run again: a campaign that was killed goes on,
on another machine, too. Seeds come in order, each with all estimators, so that whatever is finished is a table. Every
training of a seed plays the same tasks with the same random numbers from the same start, with one thread.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from hgpo.files import write_text
from hgpo.runs.folder import RunDirectory, read_metrics
from hgpo.runs.panel import run_evaluation
from long_games.tables import student_95
from runs import train

HERE = Path(__file__).parent
STORED = HERE / "campaign.json"
PAGE = HERE.parent / "docs" / "choosing.md"
MARKED = re.compile(r"<!-- campaign -->\n(?:\|.*\n)*")
REFERENCE = "gigpo"
ESTIMATORS: dict[str, tuple[str, ...]] = {
    REFERENCE: ("advantage.estimator=gigpo",),
    "hgpo paper": ("advantage.estimator=hgpo",),
    "hgpo verl-agent": ("advantage.estimator=hgpo", "advantage.options.preset=verl-agent"),
    "grpo": ("advantage.estimator=grpo",),
    "atd": ("advantage.estimator=atd", "advantage.options.mode=batch_std"),
    "mixed_effects": ("advantage.estimator=mixed_effects",),
    "g2po": ("advantage.estimator=g2po", "rollout.state=published_g2po"),
    "graphgpo": ("advantage.estimator=graphgpo",),
}
"""What a row is called -> the settings that make it. ATD is scaled to the batch, so that one learning rate fits all."""


@dataclass(frozen=True, slots=True)
class Trained:
    """One finished training.

    Attributes:
        estimator, seed: which. settings: those of all trainings of the campaign, as given on the command line.
        start: first digits of the SHA-256 of the start's weights; only trainings from one start are compared.
        before, after: success on the held-out tasks, 0-1. during: mean success of the rollouts over all updates.
        minutes: how long it took, other work beside it.

    Example: `Trained("atd", 0, "quickstart", "1f0a22c4", 0.32, 0.57, 0.61, 3.9)`.
    """

    estimator: str
    seed: int
    settings: str
    start: str
    before: float
    after: float
    during: float
    minutes: float


@dataclass(frozen=True, slots=True)
class Row:
    """One estimator over the complete seeds, in points of success.

    Attributes:
        after, during: means. lead: mean of after less the reference's, paired by seed; half: of its 95 % interval.
        lead_during, half_during: the same of the success while training.

    Example: `Row("atd", 10, 57.1, 60.9, 1.2, 1.9, 0.4, 0.8)`.
    """

    estimator: str
    seeds: int
    after: float
    during: float
    lead: float
    half: float
    lead_during: float
    half_during: float

    @property
    def told_apart(self) -> bool:
        """Whether the interval of the held-out lead leaves out 0."""
        return abs(self.lead) > self.half


def stored() -> list[Trained]:
    """All finished trainings."""
    return [Trained(**row) for row in json.loads(STORED.read_text(encoding="utf-8"))] if STORED.exists() else []


def store(done: list[Trained]) -> None:
    """Write them, a line each."""
    lines = ",\n".join(json.dumps(asdict(one)) for one in sorted(done, key=lambda one: (one.seed, one.estimator)))
    write_text(STORED, f"[\n{lines}\n]\n")


class Campaign:
    """The trainings that are missing, some at once.

    Example: `Campaign(Path("runs/campaign"), "quickstart", []).run(range(10), ["gigpo", "atd"], at_once=2)`.
    """

    def __init__(self, folder: Path, recipe: str, overrides: list[str]) -> None:
        self.folder, self.recipe, self.overrides = folder.resolve(), recipe, overrides
        self.settings = " ".join([recipe, *overrides])
        self.done = stored()
        self._lock = Lock()
        strange = {one.settings for one in self.done} - {self.settings}
        if strange:
            raise SystemExit(
                f"{STORED} holds trainings with {strange.pop()!r}, asked for {self.settings!r}; move it away"
            )

    def run(self, seeds: range, estimators: list[str], at_once: int) -> None:
        """Train what is missing, seed by seed."""
        finished = {(one.estimator, one.seed) for one in self.done}
        missing = [(name, seed) for seed in seeds for name in estimators if (name, seed) not in finished]
        print(f"{len(missing)} trainings to do, {len(seeds) * len(estimators) - len(missing)} done", flush=True)
        if not missing:
            return
        start = self._start()
        began = time.monotonic()
        with ThreadPoolExecutor(at_once) as pool:
            waiting = [pool.submit(self._train, name, seed, start) for name, seed in missing]
            for number, one in enumerate(waiting, 1):
                one.result()
                left = (time.monotonic() - began) / number * (len(missing) - number) / 60
                print(f"{number} of {len(missing)} done, {left:.0f} minutes to go", flush=True)

    def _start(self) -> Path:
        """The folder of the policy that all begin with: that of a run of no updates."""
        options = [*self.overrides, "training.updates=0", "evaluation.games=1"]
        return train(self.folder, "start", Path(self.recipe), options).start

    def _train(self, name: str, seed: int, start: Path) -> None:
        options = [*self.overrides, *ESTIMATORS[name], f"run.seed={seed}", "run.threads=1"]
        options += [f"policy.model={start}", "warm_start.enabled=false"]
        began = time.monotonic()
        run = train(self.folder, f"{name.replace(' ', '-')}-{seed}", Path(self.recipe), options)
        minutes = (time.monotonic() - began) / 60
        trained = Trained(name, seed, self.settings, weights_of(start), *success_of(run), round(minutes, 1))
        with self._lock:
            self.done.append(trained)
            store(self.done)


def weights_of(start: Path) -> str:
    """The first digits of the SHA-256 of a policy's weights."""
    return hashlib.sha256((start / "model.safetensors").read_bytes()).hexdigest()[:12]


def success_of(run: RunDirectory) -> tuple[float, float, float]:
    """Success on the held-out tasks before and after, and of all rollouts between, 0-1."""
    before, after = (run_evaluation(run, name).evaluation.success.mean for name in ("before", "after"))
    during = float(np.mean([row["success"] for row in read_metrics(run)]))
    return round(before, 6), round(after, 6), round(during, 6)


def rows(done: list[Trained]) -> list[Row]:
    """The table: seeds in which every estimator that is there has finished, from one start; at least four of them."""
    names = [name for name in ESTIMATORS if any(one.estimator == name for one in done)]
    found = {(one.estimator, one.seed): one for one in done}
    seeds = [seed for seed in sorted({one.seed for one in done}) if _complete(found, names, seed)]
    if len(seeds) < 4:
        return []
    after_ES = 100.0 * np.array([[found[name, seed].after for seed in seeds] for name in names])
    during_ES = 100.0 * np.array([[found[name, seed].during for seed in seeds] for name in names])
    base = names.index(REFERENCE)
    return [
        Row(
            name,
            len(seeds),
            after_S.mean(),
            during_S.mean(),
            *_lead(after_S, after_ES[base]),
            *_lead(during_S, during_ES[base]),
        )
        for name, after_S, during_S in zip(names, after_ES, during_ES, strict=True)
    ]


def too_few() -> str:
    """Why there is no table yet, in words."""
    done = stored()
    names = {one.estimator for one in done}
    return (
        f"no table yet: it takes four seeds with the same estimators from one start, and {STORED.name} holds "
        f"{len(done)} trainings of {len(names)} estimators; go on with: python benchmarks/campaign.py run FOLDER"
    )


def _complete(found: dict[tuple[str, int], Trained], names: list[str], seed: int) -> bool:
    starts = {found[name, seed].start for name in names if (name, seed) in found}
    return len(starts) == 1 and all((name, seed) in found for name in names)


def _lead(value_S: Any, base_S: Any) -> tuple[float, float]:
    """Mean paired difference, and half of its 95 % interval by Student's t."""
    difference_S = value_S - base_S
    error = difference_S.std(ddof=1) / np.sqrt(len(difference_S))
    return float(difference_S.mean()), float(student_95(len(difference_S) - 1) * error)


def claim(row: Row) -> str:
    """One sentence on what the row allows to say."""
    if row.estimator == REFERENCE:
        return "What the others are compared with."
    if row.told_apart:
        return f"{'Better' if row.lead > 0 else 'Worse'} than {REFERENCE} on held-out games."
    while_training = abs(row.lead_during) > row.half_during
    if while_training:
        direction = "more" if row.lead_during > 0 else "less"
        return f"Wins {direction} often than {REFERENCE} while it trains; held-out games do not tell them apart."
    return f"Not told apart from {REFERENCE}."


def as_markdown(found: list[Row]) -> str:
    """The table of the page."""
    lines = [
        f"| estimator | after, % | over {REFERENCE} | while training, % | over {REFERENCE} | what may be said |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        leads = (
            ("", "")
            if row.estimator == REFERENCE
            else (_shown(row.lead, row.half), _shown(row.lead_during, row.half_during))
        )
        lines.append(
            f"| {row.estimator} | {row.after:.1f} | {leads[0]} | {row.during:.1f} | {leads[1]} | {claim(row)} |"
        )
    return "\n".join(lines) + "\n"


def _shown(lead: float, half: float) -> str:
    return f"{lead:+.1f} ± {half:.1f}"


def write_page(check: bool) -> str | int:
    """Put the table into the page, or say in words that it would change (0: it would not)."""
    text, found = PAGE.read_text(encoding="utf-8"), rows(stored())
    if not MARKED.search(text):
        return f"{PAGE.name} has no line '<!-- campaign -->' to put the table under"
    if not found:
        return too_few()
    made = MARKED.sub(lambda _: f"<!-- campaign -->\n{as_markdown(found)}", text)
    if check:
        return 0 if made == text else f"{PAGE.name} does not show the stored figures"
    PAGE.write_text(made, encoding="utf-8")
    return 0


def show() -> None:
    """The table in the terminal."""
    found = rows(stored())
    if not found:
        sys.exit(too_few())
    table = Table("estimator", "seeds", "after", "lead", "while training", "lead", "what may be said")
    for row in found:
        leads = _shown(row.lead, row.half), _shown(row.lead_during, row.half_during)
        table.add_row(
            row.estimator, str(row.seeds), f"{row.after:.1f}", leads[0], f"{row.during:.1f}", leads[1], claim(row)
        )
    Console(width=150).print(table)


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    made = verbs.add_parser("run", help="train what is missing")
    made.add_argument("folder", type=Path, help="where the runs are written")
    made.add_argument("--recipe", default="quickstart")
    made.add_argument("--seeds", type=int, default=10)
    made.add_argument("--estimators", nargs="+", choices=list(ESTIMATORS), default=list(ESTIMATORS), metavar="NAME")
    made.add_argument("--at-once", type=int, default=1, help="trainings side by side, one thread each (default: 1)")
    made.add_argument("overrides", nargs="*", default=[], help="further settings of the recipe, for all trainings")
    verbs.add_parser("show", help="what there is")
    made = verbs.add_parser("page", help="write the table into docs/choosing.md")
    made.add_argument("--check", action="store_true", help="change nothing, exit with 1 if anything would change")
    options = parser.parse_args(arguments)
    if options.verb == "page":
        sys.exit(write_page(options.check))
    if options.verb == "run":
        Campaign(options.folder, options.recipe, options.overrides).run(
            range(options.seeds), options.estimators, options.at_once
        )
    show()


if __name__ == "__main__":
    main()
