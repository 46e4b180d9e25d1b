"""What the phases have in common: their command line, their parts, and the JSON file that docs/gpu.md shows.

A phase is a list of parts. Each part that ended well is kept in the phase's folder at once, so that the same command
goes on where it was cut off. A part that fails is written down with its reason, and the next one begins: minutes of a
GPU are dear.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from dequantised import as_folder
from hgpo.files import write_text
from hgpo.policies.device import resolve_device

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes"
LIMIT_SECONDS = 520
REHEARSAL_SECONDS = 3600  # on a machine with other work
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a phase.

    Attributes:
        name: its key in the JSON file.
        seconds: it is begun only if so many are left.
        work: measures; what it returns goes into the file.
        rehearsed: False: in a rehearsal it would show no more than another part.

    Example: `Part("matrix", 5, lambda phase: {"teraflops": 612.0})`.
    """

    name: str
    seconds: float
    work: Callable[[Phase], Figures]
    rehearsed: bool = True


@dataclass(slots=True)
class Phase:
    """One run of a phase.

    Attributes:
        number: 1 to 4.
        rehearsal: small sizes, on a CPU.
        device: what is measured.
        work: folder of models and runs; what is in it is used again.
        model: folder of SmolLM2-135M-Instruct; None in a rehearsal that was given none, which builds tiny models.
        games: folder of ALFWorld's games; None: generated ones.
        until: `time.monotonic()` at which nothing more is begun.
        chosen: names of the parts that are asked for.
        parts: what was measured.
    """

    number: int
    rehearsal: bool
    device: torch.device
    work: Path
    model: Path | None
    games: Path | None
    until: float
    chosen: list[str]
    parts: dict[str, Figures] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.until - time.monotonic()

    def sized(self, full: Any, small: Any) -> Any:
        """`small` in a rehearsal."""
        return small if self.rehearsal else full

    @property
    def settings(self) -> list[str]:
        """Of every run of the phase."""
        return [f"policy.device={self.device}", *(["run.threads=1"] if self.rehearsal else [])]


def carry_out(number: int, parts: list[Part], description: str) -> int:
    """Read the command line, measure what is missing and write the file; the exit status.

    Args:
        number: of the phase.
        parts: in order.
        description: of the phase, for `--help`.
    """
    arguments = _arguments(description, [part.name for part in parts])
    phase = _begin(number, arguments)
    phase.chosen = [
        part.name
        for part in parts
        if (arguments.only is None or part.name in arguments.only) and (part.rehearsed or not phase.rehearsal)
    ]
    conditions = {
        "rehearsal": phase.rehearsal,
        "model": None if arguments.model is None else arguments.model.name,
        "games": "generated" if arguments.games is None else "ALFWorld's",
        "machine": describe_machine(phase.device),
    }
    state = phase.work / f"phase{number}.json"
    kind = "rehearsal" if phase.rehearsal else phase.device.type
    output = arguments.output or phase.work / f"phase{number}.{kind}.json"
    phase.parts = _kept(state, conditions)
    for part in parts:
        if part.name in phase.chosen:
            _measure(phase, part)
            document = {"phase": number, **conditions, "parts": phase.parts}
            for path in (state, output):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, json.dumps(document, indent=1) + "\n")
    print(f"phase {number}: {output}", flush=True)
    return 0 if all(measured(figures) for figures in phase.parts.values()) else 1


def _begin(number: int, arguments: argparse.Namespace) -> Phase:
    """The clock runs from here."""
    began = time.monotonic()
    device = resolve_device("cpu" if arguments.rehearse else arguments.device)
    if device.type == "cpu" and not arguments.rehearse:
        raise SystemExit(f"phase {number} measures a GPU, and there is none here: add --rehearse")
    if arguments.rehearse:
        torch.set_num_threads(1)
    kind = "rehearsal" if arguments.rehearse else device.type
    work = (arguments.work or ROOT / "build" / "gpu" / "work" / kind).resolve()
    work.mkdir(parents=True, exist_ok=True)
    until = began + (arguments.limit or (REHEARSAL_SECONDS if arguments.rehearse else LIMIT_SECONDS))
    return Phase(number, arguments.rehearse, device, work, _model(arguments, work), arguments.games, until, [])


def measured(figures: Figures) -> bool:
    """Whether a part was carried out, and what it demands holds."""
    return not figures.keys() & {"failed", "skipped"} and figures.get("holds", True)


def describe_machine(device: torch.device) -> Figures:
    """What the figures depend on."""
    cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if cuda else f"{platform.machine()} CPU",
        "memory_gib": round(torch.cuda.get_device_properties(device).total_memory / 2**30, 1) if cuda else None,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
    }


def use_again() -> None:
    """Give memory back that the last part held; peaks count anew."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _measure(phase: Phase, part: Part) -> None:
    if part.name in phase.parts and measured(phase.parts[part.name]):
        print(f"{part.name}: kept", flush=True)
        return
    if phase.left < part.seconds:
        skipped = f"{max(phase.left, 0):.0f} s were left, and it takes {part.seconds:g}"
        phase.parts.setdefault(part.name, {"skipped": skipped})
        print(f"{part.name}: {skipped}", flush=True)
        return
    began = time.monotonic()
    try:
        with _ending_at(phase.until):
            figures = part.work(phase)
    except (Exception, SystemExit) as error:  # the parts that follow are worth their minutes all the same
        traceback.print_exc()
        figures = {"failed": f"{type(error).__name__}: {error}"[:2000]}
    use_again()
    phase.parts[part.name] = {"seconds": round(time.monotonic() - began, 1), **figures}
    print(f"{part.name}: {json.dumps(phase.parts[part.name])[:2000]}", flush=True)


@contextmanager
def _ending_at(until: float) -> Iterator[None]:
    """In the block, a `TimeoutError` once the time is over, whatever is done; a process that runs then is killed."""

    def end(*_: Any) -> None:
        raise TimeoutError("the phase's time is over")

    handler = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(until - time.monotonic(), 1))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


def _kept(state: Path, conditions: Figures) -> dict[str, Figures]:
    """Parts that were measured before under the same conditions."""
    if not state.exists():
        return {}
    document = json.loads(state.read_text(encoding="utf-8"))
    there = {name: document.get(name) for name in conditions}
    if there != conditions:
        raise SystemExit(f"{state} was measured with {there}, and now it would be {conditions}: choose another --work")
    return dict(document["parts"])


def _model(arguments: argparse.Namespace, work: Path) -> Path | None:
    """The model's folder."""
    if arguments.model is None:
        if not arguments.rehearse:
            raise SystemExit("--model is needed: a folder or .gguf file of SmolLM2-135M-Instruct")
        return None
    return as_folder(arguments.model, work / "model")


def _arguments(description: str, names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="small sizes on a CPU, to see that it works")
    parser.add_argument("--device", default="auto", help="of PyTorch (default: CUDA)")
    parser.add_argument("--model", type=Path, help="folder or .gguf file; a rehearsal does without")
    parser.add_argument("--games", type=Path, help="folder of ALFWorld's games (default: generated games)")
    parser.add_argument("--work", type=Path, help="folder of models and runs (default: build/gpu/work/…)")
    parser.add_argument("--only", nargs="+", choices=names, help="only these parts")
    parser.add_argument("--limit", type=float, help=f"seconds in all (default: {LIMIT_SECONDS})")
    parser.add_argument("-o", "--output", type=Path, help="the JSON file (default: in --work)")
    return parser.parse_args(sys.argv[1:])
