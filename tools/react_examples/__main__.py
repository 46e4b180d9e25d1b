"""Makes the worked examples in a ReAct agent's prompts: `python tools/react_examples [FOLDER]`.

Experts play generated games, and rules explain their actions in plain English. The files go to
`src/hgpo/agents/examples` unless a folder is named. The same code makes the same files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from choosing import household_games, shop_games

from hgpo.agents.worked_examples import WorkedExample
from hgpo.utils.files import write_text

FOLDER = Path(__file__).resolve().parents[2] / "src" / "hgpo" / "agents" / "examples"
MADE_BY = "tools/react_examples: the project's experts on its own generated games; the thoughts are worded by rules"


def document(examples: Iterable[WorkedExample]) -> str:
    """The text of a file of examples."""
    content = {"made_by": MADE_BY, "examples": [asdict(example) for example in examples]}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def main(folder: Path) -> None:
    """Write both files."""
    for name, games in {"household": household_games(), "shop": shop_games()}.items():
        write_text(folder / f"{name}.json", document(game.example for game in games))
        sys.stdout.write(f"{len(games)} examples in {folder / name}.json\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
