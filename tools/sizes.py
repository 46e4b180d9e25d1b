"""Prints how large the project is: lines and files of src/, words of docs, and how often the whole `Config` is passed.

python tools/sizes.py            the working tree
python tools/sizes.py COMMIT     any commit, beside the working tree
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
GENERATED = ("docs/results/", "docs/reference/")
"""Pages that scripts write."""
HISTORY = ("docs/decisions/", "docs/log.md", "docs/api/")


def lines(files: Iterable[Path]) -> int:
    """Lines of the files together."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def words(files: Iterable[Path]) -> int:
    """Words of the files together, as `wc -w` counts them."""
    return sum(len(file.read_text(encoding="utf-8").split()) for file in files)


def config_signatures(files: Iterable[Path]) -> int:
    """Parameters and attributes annotated with the whole `Config`."""
    return sum(len(re.findall(r"\w+: Config\b", file.read_text(encoding="utf-8"))) for file in files)


def measure(root: Path) -> dict[str, float]:
    """Every figure of one checkout, by its name in the table."""
    source = sorted((root / "src").rglob("*.py"))
    sizes = [lines([file]) for file in source]
    pages = [
        page
        for page in (root / "docs").rglob("*.md")
        if not page.relative_to(root).as_posix().startswith(GENERATED + HISTORY)
    ]
    return {
        "src: lines": sum(sizes),
        "src: files": len(sizes),
        "src: mean lines of a file": round(sum(sizes) / len(sizes)),
        "src: files under 60 lines": sum(size < 60 for size in sizes),
        "src: files over 450 lines": sum(size > 450 for size in sizes),
        "src: signatures with the whole Config": config_signatures(source),
        "docs: words (without decisions, log, API, generated pages)": words(pages),
        "README: words": words([root / "README.md"]),
    } | {
        f"{folder}: lines": lines((root / folder).rglob("*.py"))
        for folder in ("benchmarks", "tests", "plugins", "examples", "tools")
    }


def main() -> None:
    """Print one column for the working tree, and one for each commit named."""
    columns = {}
    for commit in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
            columns[commit[:8]] = measure(Path(folder))
    columns["now"] = measure(ROOT)
    print("| | " + " | ".join(columns) + " |\n|---" + "|---:" * len(columns) + "|")
    for name in columns["now"]:
        print(f"| {name} | " + " | ".join(f"{column[name]:,}" for column in columns.values()) + " |")


if __name__ == "__main__":
    main()
