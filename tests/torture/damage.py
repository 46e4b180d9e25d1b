"""The ways in which a file goes bad, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

Damage = Callable[[Path, Random], str]
"""Changes a file, and says how in a few words."""


def flip_bit(path: Path, rng: Random) -> str:
    """One bit, as a bad disk does."""
    content = bytearray(path.read_bytes())
    if not content:
        return empty(path, rng)
    place, bit = rng.randrange(len(content)), rng.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {place} flipped"


def cut(path: Path, rng: Random) -> str:
    """The end is missing, as after a copy that broke off."""
    content = path.read_bytes()
    kept = rng.randrange(max(1, len(content)))
    path.write_bytes(content[:kept])
    return f"cut to {kept} of {len(content)} bytes"


def empty(path: Path, rng: Random) -> str:
    """Nothing is left, as after a power cut."""
    path.write_bytes(b"")
    return "emptied"


def remove(path: Path, rng: Random) -> str:
    """Gone."""
    path.unlink()
    return "removed"


def zero_block(path: Path, rng: Random) -> str:
    """A block of zeros, as after a power cut, too."""
    content = bytearray(path.read_bytes())
    begin = rng.randrange(max(1, len(content)))
    content[begin : begin + 64] = bytes(len(content[begin : begin + 64]))
    path.write_bytes(content)
    return f"zeros from byte {begin}"


def nest(path: Path, rng: Random) -> str:
    """Brackets within brackets, deeper than any reader's stack."""
    path.write_bytes(b"x = " * (path.suffix == ".toml") + b"[" * 100_000 + b"]" * 100_000)
    return "nested 100,000 deep"


def other_kind(path: Path, rng: Random) -> str:
    """A document of the right format that holds something else."""
    content = rng.choice([b"{}", b"[]", b"null", b"1e999", b'"text"', b"\xff\xfe\x00", b"x = 1\n"])
    path.write_bytes(content)
    return f"replaced by {content!r}"


def grown(path: Path, rng: Random) -> str:
    """Something stands after its end."""
    with path.open("ab") as file:
        file.write(rng.choice([b"\x00" * 16, b"{}\n", b"garbage"]))
    return "something added at its end"


DAMAGES: tuple[Damage, ...] = (flip_bit, flip_bit, cut, cut, empty, remove, zero_block, nest, other_kind, grown)


def exchange(one: Path, other: Path) -> str:
    """Two files have changed places."""
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    return f"exchanged with {other.name}"
