"""Pack what the phases need on a machine without network that takes 64 MiB a transfer.

python benchmarks/gpu/pack.py --games alfworld.tar.xz       wheels, SmolLM2-135M-Instruct, ALFWorld's games
python benchmarks/gpu/pack.py --only wheels                 the wheels alone
python benchmarks/gpu/pack.py --there pyarrow rich          without packages that are there already

What is packed lies in build/gpu/load-1, load-2, …, one a transfer, each small enough to travel beside the repository's
own files. There, `unpack.py` takes one after the other.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MIB = 2**20
TRANSFER = 64 * MIB
SPARE = 2 * MIB  # names and headers travel, too
PART = 55 * MIB  # of a file that is cut
KINDS = ("wheels", "model", "games")
# hgpo's dependencies, theirs, and the tests' that a machine with torch, transformers, peft and accelerate may lack.
WHEELS = (
    *("annotated-types", "gguf", "hypothesis", "iniconfig", "jinja2", "markdown-it-py", "markupsafe", "mdurl"),
    *("pluggy", "pyarrow", "pydantic", "pydantic-core", "pygments", "pytest", "pytest-timeout", "rich"),
    *("sortedcontainers", "tomli-w", "typing-extensions", "typing-inspection"),
)
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def main() -> None:
    """Read the command line, pack and print the sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=Path, help="ALFWorld's games: a .tar.xz archive, or a folder with the splits")
    parser.add_argument("--model", type=Path, help="a .gguf file (default: SmolLM2-135M-Instruct, out of a wheel)")
    parser.add_argument("--python", default="3.12", help="version there (default: 3.12)")
    parser.add_argument("--there", nargs="+", default=[], choices=WHEELS, help="packages that need not travel")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), help="(default: all)")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build" / "gpu", help="(default: build/gpu)")
    arguments = parser.parse_args()
    staging = arguments.output / "staging"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    joined = {}
    if "wheels" in arguments.only:
        fetch_wheels(staging, arguments.python, [name for name in WHEELS if name not in arguments.there])
    if "model" in arguments.only:
        joined = cut(arguments.model or fetched_model(), staging)
    if "games" in arguments.only and arguments.games is not None:
        pack_games(arguments.games, staging)
    loads = into_loads(sorted(staging.iterdir()), TRANSFER - SPARE - repository_bytes())
    write_loads(loads, joined, arguments.output)
    shutil.rmtree(staging)


def fetch_wheels(folder: Path, python: str, names: list[str]) -> None:
    """In the versions of constraints.txt where it has one."""
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *platforms]
    command += ["--python-version", python, "--implementation", "cp", "--dest", str(folder), *pinned(names)]
    subprocess.run(command, check=True)


def pinned(names: list[str]) -> list[str]:
    """Packages as pip takes them."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {line.split("==")[0].lower().replace("_", "-"): line for line in lines if "==" in line}
    return [pins.get(name, name) for name in names]


def fetched_model() -> Path:
    """As the tests take it."""
    sys.path.insert(0, str(ROOT / "tests"))
    from real_model import real_model_file

    return real_model_file()


def cut(file: Path, folder: Path) -> dict[str, dict[str, object]]:
    """Write a file's parts of at most `PART` bytes, about equal ones; what it is joined from, by its name."""
    size = file.stat().st_size
    count = -(-size // PART)
    parts = []
    with file.open("rb") as source:
        for number in range(count):
            name = f"{file.name}.part{number + 1}"
            (folder / name).write_bytes(source.read(-(-size // count)))
            parts.append(name)
    return {file.name: {"parts": parts, "sha256": digest(file)}}


def pack_games(games: Path, folder: Path) -> None:
    """An archive as it is; a folder as an archive."""
    target = folder / "games.tar.xz"
    if games.is_file():
        shutil.copyfile(games, target)
        return
    splits = [path for path in sorted(games.iterdir()) if path.name in ("train", "valid_seen", "valid_unseen")]
    if not splits:
        raise SystemExit(f"{games} has none of the splits train, valid_seen and valid_unseen")
    with tarfile.open(target, "w:xz") as archive:
        for split in splits:
            archive.add(split, split.name)


def into_loads(files: list[Path], limit: int) -> list[list[Path]]:
    """Files in as few loads as the first fit finds, the largest first; each at most `limit` bytes."""
    loads: list[list[Path]] = []
    for file in sorted(files, key=lambda path: -path.stat().st_size):
        if file.stat().st_size > limit:
            raise SystemExit(
                f"{file.name} has {file.stat().st_size / MIB:.1f} MiB, and {limit / MIB:.1f} travel at once"
            )
        fitting = (load for load in loads if sum(one.stat().st_size for one in [*load, file]) <= limit)
        load = next(fitting, None)
        if load is None:
            loads.append([file])
        else:
            load.append(file)
    return loads


def write_loads(loads: list[list[Path]], joined: dict[str, dict[str, object]], output: Path) -> None:
    """Move files into their folders, each with a list of all, and print the sizes."""
    for old in output.glob("load-*"):
        shutil.rmtree(old)
    files = {file.name: {"load": number, "sha256": digest(file)} for number, file in numbered(loads)}
    manifest = json.dumps({"files": files, "joined": joined}, indent=1) + "\n"
    beside = repository_bytes()
    for number, load in enumerate(loads, 1):
        folder = output / f"load-{number}"
        folder.mkdir()
        (folder / "manifest.json").write_text(manifest, encoding="utf-8")
        for file in load:
            file.rename(folder / file.name)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(
            f"{folder}: {len(load)} files, {size / MIB:.1f} MiB; with the repository's {(size + beside) / MIB:.1f} MiB"
        )


def numbered(loads: list[list[Path]]) -> Iterator[tuple[int, Path]]:
    """Every file with its load's number, from 1."""
    for number, load in enumerate(loads, 1):
        for file in load:
            yield number, file


def repository_bytes() -> int:
    """What travels by itself: the files that git tracks, and those that it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return sum(path.lstat().st_size for name in listed if name and (path := ROOT / name).exists())


def digest(file: Path) -> str:
    """SHA-256 in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


if __name__ == "__main__":
    main()
