"""Train with several estimators from one start policy, and compare their success, paired by training seed.

    python benchmarks/campaign.py run FOLDER --at-once 2              # ten seeds of all estimators; hours
    python benchmarks/campaign.py run FOLDER training.updates=60 --estimators gigpo atd    # two estimators, shorter
    python benchmarks/campaign.py run FOLDER --recipe webshop-tiny --seeds 3 --estimators gigpo g2po
    python benchmarks/campaign.py choose FOLDER --rates 2.5e-4 5e-4 1e-3    # try three rates with every estimator
    python benchmarks/campaign.py run FOLDER --recipe alfworld-tiny --start benchmarks/starts/alfworld-tiny
    python benchmarks/campaign.py run FOLDER --recipe smollm2 --model SmolLM2-135M-Instruct.Q4_1.gguf --seeds 3
    python benchmarks/campaign.py show                                # print the tables

A finished training is a line of benchmarks/campaign.json and is never run again, so a campaign that was killed can be
continued, also on another machine. Seeds run in order, each with all estimators, so the finished trainings always form
a table. All trainings of a seed play the same tasks with the same random numbers from the same start, with one thread.
A warm start on another type of CPU gives other weights, so another machine cannot finish a seed, unless `--start` names
a stored policy; it can train further seeds, because estimators are compared within seeds.

`choose` trains each estimator once with each learning rate, with a seed that `run` does not use. It measures success on
the split valid_seen. If the recipe itself evaluates on valid_seen, it measures the rollouts in the last third of the
updates, whose tasks were not trained on before. `run` with the same settings takes the best rate.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Lock

import numpy as np

from campaign_table import (
    ESTIMATORS,
    FEWEST_SEEDS,
    RateTrial,
    Trained,
    as_markdown,
    chosen_rate,
    rate_trials,
    settings_of,
    store,
    store_rate_trials,
    stored,
    tables,
)
from hgpo.config import load_config
from hgpo.evaluation.result_files import read_evaluation
from hgpo.runs.folder import RunDirectory, read_json, read_metrics
from runs import train

CHOOSING_SEED = 1000
"""Seed of the trainings that choose a learning rate; `run` counts its seeds from 0."""
CHOOSING_SPLIT = "valid_seen"
"""Split whose success decides on a learning rate; if the recipe evaluates on it, the last third of the updates does."""


class Campaign:
    """Carries out the missing trainings of a campaign, several in parallel.

    Example: `Campaign(Path("runs/campaign"), "quickstart", []).run(range(10), ["gigpo", "atd"], at_once=2)`.
    """

    def __init__(
        self, folder: Path, recipe: str, overrides: list[str], start: Path | None = None, model: Path | None = None
    ) -> None:
        self.folder, self.recipe, self.overrides = folder.resolve() / recipe, recipe, overrides
        self._stored_start = start.resolve() if start else None
        self._model = [f"policy.model={model.resolve()}"] if model else []
        self.settings = " ".join([recipe, *overrides])
        config = load_config(Path(recipe), overrides)
        self.environment = config.environment.name
        self.judges_by_rollouts = config.evaluation.split == CHOOSING_SPLIT
        self.done = stored()
        self._lock = Lock()

    def run(self, seeds: range, estimators: list[str], at_once: int) -> None:
        """Train what is missing, seed by seed."""
        finished = {(one.estimator, one.seed) for one in self.done if one.settings == self.settings}
        missing = [(name, seed) for seed in seeds for name in estimators if (name, seed) not in finished]
        print(f"{len(missing)} trainings to do, {len(seeds) * len(estimators) - len(missing)} done", flush=True)
        if not missing:
            return
        start = self._start()
        self.refuse_another_start(weights_of(start), {seed for _, seed in missing})
        before = self._success_of_start(start)
        began = time.monotonic()
        with ThreadPoolExecutor(at_once) as pool:
            waiting = [pool.submit(self._train, name, seed, start, before) for name, seed in missing]
            for number, one in enumerate(waiting, 1):
                one.result()
                left = (time.monotonic() - began) / number * (len(missing) - number) / 60
                print(f"{number} of {len(missing)} done, {left:.0f} minutes to go", flush=True)

    def refuse_another_start(self, start: str, seeds: set[int]) -> None:
        """Stop if stored trainings of one of these seeds began from another policy, since they are not comparable."""
        for one in self.done:
            if one.settings == self.settings and one.seed in seeds and one.start != start:
                raise SystemExit(
                    f"{one.estimator} with seed {one.seed} began from weights {one.start}, and the other trainings of "
                    f"this seed would begin from {start}. Name the first start with --start, or remove the trainings "
                    f"of {self.settings!r} with seed {one.seed} from campaign.json."
                )

    def choose(self, rates: list[float], estimators: list[str], at_once: int, updates: int = 0) -> None:
        """Train each estimator with each learning rate, if not done yet; `updates` above 0 replaces the recipe's."""
        there = {(one.estimator, one.rate) for one in rate_trials() if one.settings == self.settings}
        missing = [(name, rate) for rate in rates for name in estimators if (name, rate) not in there]
        print(f"{len(missing)} trainings to do, {len(rates) * len(estimators) - len(missing)} done", flush=True)
        if not missing:
            return
        start = self._start()
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda one: self._try_rate(*one, start, updates), missing))

    def _try_rate(self, name: str, rate: float, start: Path, updates: int) -> None:
        options = [f"training.learning_rate={rate:g}"]
        options += ["evaluation.games=1"] if self.judges_by_rollouts else [f"evaluation.split={CHOOSING_SPLIT}"]
        options += [f"training.updates={updates}"] if updates else []
        run = self._run(name, f"{name.replace(' ', '-')}-rate-{rate:g}", CHOOSING_SEED, start, options)
        success, during = success_of(run)
        if self.judges_by_rollouts:
            successes = [row["success"] for row in read_metrics(run)]
            success = round(float(np.mean(successes[-(len(successes) // 3) :])), 6)
        with self._lock:
            done = rate_trials()
            trial = RateTrial(name, rate, self.settings, weights_of(start), success, during, updates)
            store_rate_trials([*done, trial])

    def _run(self, name: str, folder: str, seed: int, start: Path, options: list[str]) -> RunDirectory:
        """One training from the common start, with one thread."""
        own = [*self.row_settings(name), *options, f"run.seed={seed}", *self._from_start(start)]
        return train(self.folder, folder, Path(self.recipe), own)

    def _from_start(self, start: Path) -> list[str]:
        """Settings of every run that begins with the common start policy, whose success is measured once for all."""
        return ["run.threads=1", f"policy.model={start}", "warm_start.enabled=false", "evaluation.before=false"]

    def row_settings(self, estimator: str) -> list[str]:
        """Settings of a row. Those for all trainings win, so that all rows can have one state key."""
        return [*settings_of(estimator, self.environment), *self.overrides]

    def _start(self) -> Path:
        """Folder of the common start policy: the given one, or that of a run without updates."""
        if self._stored_start:
            return self._stored_start
        options = [*self.overrides, *self._model, "training.updates=0", "evaluation.games=1"]
        return train(self.folder, "start", Path(self.recipe), options).start

    def _success_of_start(self, start: Path) -> float:
        """Success of the start policy on the held-out tasks: of a stored training, else evaluated."""
        for one in self.done:
            if (one.settings, one.start) == (self.settings, weights_of(start)):
                return one.before
        options = [*self.overrides, *self._from_start(start), "training.updates=0"]
        return evaluated_success(train(self.folder, "start-evaluated", Path(self.recipe), options))

    def _train(self, name: str, seed: int, start: Path, before: float) -> None:
        rate = list(chosen_rate(name, self.settings))
        run = self._run(name, f"{name.replace(' ', '-')}-{seed}", seed, start, rate)
        minutes = round(read_json(run.summary)["seconds"] / 60, 1)  # with what an interrupted training did before
        trained = Trained(name, seed, self.settings, weights_of(start), before, *success_of(run), minutes, *rate)
        with self._lock:
            self.done.append(trained)
            store(self.done)


@cache
def weights_of(start: Path) -> str:
    """The first digits of the SHA-256 of a policy's weights; the file is read once."""
    return hashlib.sha256((start / "model.safetensors").read_bytes()).hexdigest()[:12]


def evaluated_success(run: RunDirectory) -> float:
    """Success on the held-out tasks after the last update, 0-1."""
    return round(read_evaluation(run.evaluation("after")).evaluation.success.mean, 6)


def success_of(run: RunDirectory) -> tuple[float, float]:
    """Success on the held-out tasks after the last update, and of all rollouts, 0-1."""
    during = float(np.mean([row["success"] for row in read_metrics(run)]))
    return evaluated_success(run), round(during, 6)


def show() -> None:
    """Print the tables."""
    done = stored()
    for settings, found in tables().items():
        if found:
            print(f"{settings}: {found[0].seeds} seeds\n\n{as_markdown(found)}")
            continue
        there = [one for one in done if one.settings == settings]
        named = ", ".join(sorted({one.estimator for one in there}))
        print(f"{settings}: {len(there)} trainings of {named}; a table takes {FEWEST_SEEDS} seeds of each")


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    made = verbs.add_parser("run", help="train what is missing")
    made.add_argument("--seeds", type=int, default=10)
    tried = verbs.add_parser("choose", help="train with several learning rates, of which `run` takes the best")
    tried.add_argument("--rates", nargs="+", type=float, required=True, metavar="RATE")
    tried.add_argument("--updates", type=int, default=0, help="of each trial (default: as many as `run` makes)")
    for verb in (made, tried):
        verb.add_argument("folder", type=Path, help="where the runs are written")
        verb.add_argument("--recipe", default="quickstart")
        begin = verb.add_mutually_exclusive_group()
        begin.add_argument("--start", type=Path, metavar="FOLDER", help="start policy (default: a warm start)")
        begin.add_argument("--model", type=Path, metavar="PATH", help="the recipe's model, where no hub can be reached")
        verb.add_argument("--estimators", nargs="+", choices=list(ESTIMATORS), default=list(ESTIMATORS), metavar="NAME")
        verb.add_argument("--at-once", type=int, default=1, help="trainings side by side, one thread each (default: 1)")
        verb.add_argument("overrides", nargs="*", default=[], help="further settings of the recipe, for all trainings")
    verbs.add_parser("show", help="what there is")
    options = parser.parse_args(arguments)
    if options.verb == "show":
        show()
        return
    campaign = Campaign(options.folder, options.recipe, options.overrides, options.start, options.model)
    if options.verb == "choose":
        campaign.choose(options.rates, options.estimators, options.at_once, options.updates)
        return
    campaign.run(range(options.seeds), options.estimators, options.at_once)
    show()


if __name__ == "__main__":
    main()
