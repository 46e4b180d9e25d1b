"""The tables of docs/gpu.md, made of the phases' JSON files.

cd benchmarks && python -m gpu.page FILE.json …                     print them
cd benchmarks && python -m gpu.page --write                         put those of benchmarks/gpu/*.json into the page
cd benchmarks && python -m gpu.page FILE.json --picture curve.png   phase 3: success of the rollouts by update
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import model_sizes
from gpu.phase import ROOT, Figures, measured
from hgpo.policies.backends import BACKENDS

PAGE = ROOT / "docs" / "gpu.md"
FILES = ROOT / "benchmarks" / "gpu"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
TITLES = ("does it run", "how fast", "does it learn", "shops, and larger models")
SHOWN_OPERATIONS = 5
Row = Sequence[str]


def main() -> None:
    """Read the command line; print, write or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", help="(default: benchmarks/gpu/*.json)")
    parser.add_argument("--write", action="store_true", help="into docs/gpu.md")
    parser.add_argument("--picture", type=Path, help="draw the learning curves (needs matplotlib: hgpo[report])")
    arguments = parser.parse_args()
    found = [json.loads(path.read_text(encoding="utf-8")) for path in arguments.files or stored_files()]
    text = tables(found)
    print(text)
    if arguments.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_tables(page, text), encoding="utf-8")
    if arguments.picture:
        draw(next(one for one in found if one["phase"] == 3), arguments.picture)


def stored_files() -> list[Path]:
    """Those that the repository has; rehearsals come last."""
    return sorted(FILES.glob("phase*.json"), key=lambda path: (path.name.endswith(".rehearsal.json"), path.name))


def with_tables(page: str, text: str) -> str:
    """The page with `text` between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def tables(found: Sequence[Figures]) -> str:
    """Everything, as Markdown."""
    return "\n\n".join(section(one) for one in found)


def section(document: Figures) -> str:
    """A phase: its title, its machine, its tables."""
    number, machine, parts = document["phase"], document["machine"], document["parts"]
    title = f"### Phase {number}: {TITLES[number - 1]}"
    kind = "A **rehearsal** with small sizes: its figures say that the code runs, and nothing of a GPU. " * int(
        document["rehearsal"]
    )
    played = f"{document['model'] or 'tiny models'}, {document['games']} games"
    where = f"{kind}{machine['device']}, {machine['cores']} cores, PyTorch {machine['torch']}, transformers "
    where += f"{machine['transformers']}; {played}; {sum(part.get('seconds', 0) for part in parts.values()):.0f} s."
    shown = {1: _runs, 2: _fast, 3: _learns, 4: _larger}[number]({k: p for k, p in parts.items() if measured_part(p)})
    missing = [(name, _why(part)) for name, part in parts.items() if not measured_part(part)]
    blocks = [table for table in shown if table]
    if missing:
        blocks.append(markdown(("not measured", "why"), missing))
    return "\n\n".join([title, where, *blocks])


def measured_part(part: Figures) -> bool:
    """Whether there is anything to show of it; what it demands may not hold."""
    return measured({key: value for key, value in part.items() if key != "holds"})


def markdown(head: Row, rows: Sequence[Row]) -> str:
    """A table; nothing without rows."""
    if not rows:
        return ""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _why(part: Figures) -> str:
    return str(part.get("failed", part.get("skipped"))).splitlines()[0].replace("|", "/")


def _runs(parts: dict[str, Figures]) -> Iterator[str]:
    rows = [(name, _found(part), "yes" if part["holds"] else "**no**") for name, part in parts.items()]
    yield markdown(("part", "found", "as demanded"), rows)


def _found(part: Figures) -> str:
    if "tests" in part:
        return f"{part['tests']} tests, {part['failed_tests']} failed, {part['skipped_tests']} skipped"
    if "to_cpu" in part:
        gap = part["to_cpu"]
        return f"log-probs differ from the CPU's in float32 by {gap['mean']:.1e} on average, {gap['max']:.1e} at most"
    if "lowered" in part:
        again = f"micro-batches made smaller {part['lowered']} times"
        return f"{again}; the update's change of the weights differs by {part['relative_difference']:.1e}"
    if "plain" in part:
        return "; ".join(
            f"{name} kernels: figures {'equal' if one['same_figures'] else 'differ'}, weights differ by "
            f"{one['largest_difference']:.1e} at most"
            for name, one in (("usual", part["plain"]), ("repeatable", part["repeatable"]))
        )
    return f"the update's change of the weights differs by {part['relative_difference']:.1e} of its length"


def _fast(parts: dict[str, Figures]) -> Iterator[str]:
    speed = parts["matrix"]["flops"] if "matrix" in parts else None
    if speed is not None:
        yield f"Matrix products in bfloat16 ({parts['matrix']['size']:,} wide): {speed / 1e12:.2f} TFLOP/s."
    if "samplers" in parts:
        [found] = parts["samplers"]["precisions"].values()
        rows = [
            (name, f"{one['tokens_per_second']:,.0f}", f"{one['log_prob_gap']['mean']:.1e}")
            for name, one in found.items()
            if name in BACKENDS.names()
        ]
        yield markdown(("sampler", "tokens/s", "log-probs differ from the trainer's by, on average"), rows)
    yield _trainings({name: parts[name] for name in ("full", "lora") if name in parts}, speed)
    sizes = {name.removeprefix("size "): part for name, part in parts.items() if name.startswith("size ")}
    head = ("parameters", "tokens/s", "peak memory", "s an update", *model_sizes.PHASES)
    yield markdown(head, model_sizes.rows({"sizes": sizes}))
    if "profile" in parts:
        rows = [
            (half, one["name"], f"{one['calls']:,}", f"{one['milliseconds']:.1f}", f"{100 * one['share']:.1f} %")
            for half in ("collect", "update")
            for one in parts["profile"][half]["worst"][:SHOWN_OPERATIONS]
        ]
        yield markdown(("half", "operation", "calls", "ms", "share"), rows)


def _trainings(parts: dict[str, Figures], speed: float | None) -> str:
    rows = [
        (
            name,
            f"{one['parameters'] / 1e6:,.1f} M",
            f"{one['sampled_tokens_per_second']:,.0f}",
            f"{one['updated_tokens_per_second']:,.0f}",
            "" if speed is None else f"{100 * one['update_flops'] / speed:.1f} %",
            f"{one['seconds_per_update']:.1f}",
            f"{100 * one['shares']['collect']:.0f} %",
            f"{one['peak_memory_gib']:.2f} GiB",
            f"{one['estimated_memory_gib']:.2f} GiB",
        )
        for name, one in parts.items()
    ]
    head = ("trained", "parameters", "sampled tokens/s", "updated tokens/s", "of the matrix speed", "s an update")
    return markdown((*head, "collecting", "peak memory", "estimated"), rows)


def _learns(parts: dict[str, Figures]) -> Iterator[str]:
    if "start" in parts:
        yield f"After the warm start: {_rate(parts['start']['success'])}."
    yield _learned({name: part for name, part in parts.items() if name != "start"})


def _learned(parts: dict[str, Figures]) -> str:
    rows = [
        (
            name,
            str(one["updates"]),
            _rate(one["success"]),
            f"{100 * one['gain']['mean']:+.1f} ({100 * one['gain']['low']:+.1f} to {100 * one['gain']['high']:+.1f})",
            f"{one['peak_memory_gib']:.2f} GiB",
        )
        for name, one in parts.items()
    ]
    return markdown(("estimator", "updates", "success", "points gained", "peak memory"), rows)


def _larger(parts: dict[str, Figures]) -> Iterator[str]:
    if "shop start" in parts:
        yield f"Generated shops, after the warm start: {_rate(parts['shop start']['success'])}."
    yield _learned({"hgpo": parts["shop"]} if "shop" in parts else {})
    yield _trainings({name.removeprefix("qwen "): part for name, part in parts.items() if "qwen" in name}, None)


def _rate(rate: Figures) -> str:
    low, high = (f"{100 * rate[end]:.1f}" for end in ("low", "high"))
    return f"{100 * rate['mean']:.1f} % [{low}, {high}] of {rate['games']} games"


def draw(document: Figures, path: Path) -> None:
    """Success of the rollouts of each update, a line for each estimator."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5), dpi=110, layout="constrained")
    for name, part in document["parts"].items():
        curve: list[Any] = part.get("curve", {}).get("success", [])
        if curve:
            axes.plot(range(1, len(curve) + 1), [100 * value for value in curve], label=name)
    axes.set(xlabel="update", ylabel="success of the rollouts, %", ylim=(0, 100))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


if __name__ == "__main__":
    main()
