"""The Python examples of README.md: indented blocks that begin with an import, and what they say that they print."""

import re
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


@dataclass(frozen=True)
class Example:
    """Code, and the lines that its last comments show before their explanations, two spaces on."""

    code: str
    prints: tuple[str, ...]


def examples() -> list[Example]:
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"^    import (?:.*\n|\n(?=    |\n))+?(?=\S)", text, re.MULTILINE)
    return [Example(re.sub(r"^    ", "", block, flags=re.MULTILINE), printed(block)) for block in blocks]


def printed(block: str) -> tuple[str, ...]:
    return tuple(re.findall(r"^    # (.+?)(?:  .*)?$", block, re.MULTILINE))
