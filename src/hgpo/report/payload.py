"""The data of the report page, packed: one zlib stream of a JSON header and its columns, as base64.

    4 bytes   length of the header, little-endian
    header    JSON, UTF-8; every column is {"type": "u1" | "u2" | "i4" | "f4", "at": first byte, "length": values}
    columns   the bytes of each column, its values' first bytes, then their second bytes, …: alike bytes compress better

A column of one value is {"value": v, "length": n} and takes no bytes; equal columns are stored once. Numbers are 32
bits wide: a page shows four digits.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgpo.columns import IntArray

Column = dict[str, Any]


class Columns:
    """Collects the columns of a report and concatenates their bytes; equal columns are stored once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._known: dict[tuple[str, bytes], Column] = {}

    def add(self, values: NDArray[Any]) -> Column:
        """Add a column of integers, booleans or floats; return its header entry. NaN becomes null in the page."""
        stored = _smallest(values)
        if len(stored) and stored.dtype.kind != "f" and (stored == stored[0]).all():
            return {"value": int(stored[0]), "length": len(stored)}
        if len(stored) and stored.dtype.kind == "f" and np.isfinite(stored[0]) and (stored == stored[0]).all():
            return {"value": float(stored[0]), "length": len(stored)}
        planes = stored.view(np.uint8).reshape(len(stored), stored.itemsize).T.tobytes() if len(stored) else b""
        kind = f"{stored.dtype.kind}{stored.itemsize}"
        known = self._known.get((kind, planes))
        if known is None:
            known = self._known[kind, planes] = {"type": kind, "at": self._size, "length": len(stored)}
            self._parts.append(planes)
            self._size += len(planes)
        return known

    def bytes(self) -> bytes:
        """All columns, one after the other."""
        return b"".join(self._parts)


class TextStore:
    """Numbers texts from 1 by first appearance; 0 is "no text".

    Example: `store = TextStore(); store.add("a\\nb"), store.add(None), store.add("a\\nc")` is (1, 0, 2), with
    `store.lines` a, b, c and `store.encoded()` ([0, 0, 2, 4], [0, 1, 0, 2]).
    """

    def __init__(self) -> None:
        self._text_number: dict[str, int] = {}
        self._line_number: dict[str, int] = {}
        self._line_ids: list[int] = []
        self._ends: list[int] = [0, 0]

    def add(self, text: str | None) -> int:
        """Add a text and return its number."""
        if text is None:
            return 0
        number = self._text_number.get(text)
        if number is None:
            number = self._text_number[text] = len(self._text_number) + 1
            lines = self._line_number
            self._line_ids += [lines.setdefault(line, len(lines)) for line in text.split("\n")]
            self._ends.append(len(self._line_ids))
        return number

    @property
    def lines(self) -> list[str]:
        """The distinct lines, by number."""
        return list(self._line_number)

    def encoded(self) -> tuple[IntArray, IntArray]:
        """(start, line): text n is lines `line[start[n]:start[n + 1]]`, joined by line breaks."""
        return np.array(self._ends, dtype=np.int64), np.array(self._line_ids, dtype=np.int64)


def pack(header: dict[str, Any], columns: Columns) -> str:
    """Header and columns as base64 of a zlib stream; the page's `unpack` (bytes.js) is its inverse."""
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")
    return base64.b64encode(zlib.compress(struct.pack("<I", len(text)) + text + columns.bytes(), 9)).decode("ascii")


def _smallest(values: NDArray[Any]) -> NDArray[Any]:
    """The narrowest type of the page that holds the values, little-endian."""
    if values.dtype.kind == "f":
        return values.astype("<f4")
    if values.dtype.kind == "b":
        return values.astype(np.uint8)
    lowest, highest = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if lowest >= 0 and highest < 2**16:
        return values.astype(np.uint8 if highest < 2**8 else "<u2")
    return values.astype("<i4")
