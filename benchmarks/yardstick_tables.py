"""Write the figures of the yardsticks into docs/choosing.md, where a comment says which.

    python benchmarks/yardstick_tables.py            # rewrite the tables
    python benchmarks/yardstick_tables.py --check    # fail if they are not the stored figures

A table stands between `<!-- yardsticks FILE MEASURE N: ESTIMATOR; ESTIMATOR; … -->` and the next blank line.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "choosing.md"
MARKED = re.compile(r"<!-- yardsticks (?P<file>\S+) (?P<measure>\S+) (?P<count>\d+): (?P<names>.+?) -->\n(?:\|.*\n)*")


def table(file: str, measure: str, count: int, names: list[str]) -> str:
    """One row for each estimator, one column for each problem; the best cosine of a column in bold."""
    rows: list[dict[str, Any]] = json.loads((FOLDER / file).read_text(encoding="utf-8"))["rows"]
    found = {(row["estimator"], row["problem"]): row[measure] for row in rows if row["N"] == count}
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    lines = ["| estimator | " + " | ".join(problems) + " |", "|---" * (len(problems) + 1) + "|"]
    for name in names:
        cells = [f"{found[name, problem]:.3f}" for problem in problems]
        if measure == "cosine":
            best = [f"{max(found[other, problem] for other in names):.3f}" for problem in problems]
            cells = [f"**{cell}**" if cell == top else cell for cell, top in zip(cells, best, strict=True)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def rewritten(text: str) -> str:
    """The page with every marked table made anew."""

    def anew(match: re.Match[str]) -> str:
        marker = match.group(0).partition("\n")[0]
        names = [name.strip() for name in match["names"].split(";")]
        return marker + "\n" + table(match["file"], match["measure"], int(match["count"]), names)

    return MARKED.sub(anew, text)


def main() -> None:
    """Rewrite or check the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, exit with 1 if anything would change")
    text = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().check:
        sys.exit(0 if rewritten(text) == text else f"{PAGE.name} does not show the stored figures")
    PAGE.write_text(rewritten(text), encoding="utf-8")


if __name__ == "__main__":
    main()
