"""Speed of the shop: steps per second, start-up, and the index of a large catalogue. Run it on one core.

python benchmarks/webshop.py                                   generated shops
python benchmarks/webshop.py --official FOLDER                 the official 1,000 products as well
python benchmarks/webshop.py --products 200000                 and a large generated catalogue
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from hgpo.envs.webshop import Catalog, ShopSize, WebShopEnv, generate_catalog
from hgpo.envs.webshop.catalog import build_index

SEARCHES = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", type=Path, help="folder with items_shuffle_1000.json and items_ins_v2_1000.json")
    parser.add_argument("--products", type=int, default=0, help="size of a large generated catalogue (default: none)")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--opened", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.opened:
        opened(arguments.opened)
        return
    report_steps("generated, 1,000 products", generate_catalog("large"), arguments.steps)
    if arguments.official:
        started = time.perf_counter()
        files = (arguments.official / "items_shuffle_1000.json", arguments.official / "items_ins_v2_1000.json")
        catalog = Catalog.load(*files, seed=1234)
        print(f"official, 1,000 products: start-up {time.perf_counter() - started:.2f} s")
        report_steps("official, 1,000 products", catalog, arguments.steps)
    if arguments.products:
        large(arguments.products)


def report_steps(what: str, catalog: Catalog, steps: int) -> None:
    """Both modes, each in a process of its own: searches and nouns are cached."""
    for mode in ("text", "text_rich"):
        process = multiprocessing.get_context("fork").Process(target=report_mode, args=(what, catalog, mode, steps))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(process.exitcode)


def report_mode(what: str, catalog: Catalog, mode: str, steps: int) -> None:
    """Random customers: a search now and then, else a random click."""
    rng = random.Random(0)
    environment = WebShopEnv(catalog, mode)
    done = True
    started = time.perf_counter()
    for _ in range(steps):
        if done:
            _, info = environment.reset(goal=rng.randrange(len(catalog.goals)))
        available = info["available_actions"]
        if available["has_search_bar"]:
            action = f"search[{info['task']}]"
        else:
            action = f"click[{rng.choice(available['clickables'])}]"
        _, _, done, _, info = environment.step(action)
    print(f"{what}, {mode}: {steps / (time.perf_counter() - started):,.0f} steps/s", flush=True)


def large(products: int) -> None:
    """Build, save and reopen a catalogue; the reopening is timed in fresh processes."""
    size = ShopSize(
        products=products, kinds=32, attributes=2, values=4, page_size=10, results=50, description_words=120
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "catalog"
        started = time.perf_counter()
        catalog = generate_catalog(size)
        generated = time.perf_counter()
        build_index(catalog.products)
        built = time.perf_counter()
        catalog.save(folder)
        saved = time.perf_counter()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        on_disk = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
        print(
            f"{products:,} products: made, index included, in {generated - started:.1f} s; {len(catalog.goals):,} goals"
        )
        print(
            f"  index alone {built - generated:.1f} s, "
            f"{len(catalog.index.vocabulary):,} terms; saved in {saved - built:.1f} s, {on_disk:,.0f} MiB on disk"
        )
        print(f"  peak memory of it all {peak:.2f} GiB")
        del catalog
        for name in ("first", "second"):
            print(f"  reopened, {name} process:", flush=True)
            subprocess.run([sys.executable, __file__, "--opened", str(folder)], check=True)


def opened(folder: Path) -> None:
    """Start from saved files and search."""
    started = time.perf_counter()
    catalog = Catalog.open(folder)
    WebShopEnv(catalog).reset(goal=0)
    print(f"    ready in {time.perf_counter() - started:.3f} s")
    rng = random.Random(os.getpid())
    times = []
    for _ in range(SEARCHES):
        product = catalog.products[rng.randrange(len(catalog.products))]
        goal = catalog.goals[rng.randrange(len(catalog.goals))]
        words = rng.sample(product.description.split(), 6)
        query = rng.choice([goal.instruction, product.title, " ".join(words), f"{goal.instruction} {' '.join(words)}"])
        started = time.perf_counter()
        catalog.index.search(query, 50)
        times.append(time.perf_counter() - started)
    p50, p95 = np.percentile(times, [50, 95]) * 1e3
    private = private_memory()
    print(
        f"    {SEARCHES} searches: median {p50:.1f} ms, 95th percentile {p95:.1f} ms; private memory {private:.0f} MiB"
    )


def private_memory() -> float:
    """Anonymous memory of this process in MiB, without files that it maps (Linux)."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return float("nan")
    return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024


if __name__ == "__main__":
    main()
