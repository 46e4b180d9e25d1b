"""What a page shows, packed: one zlib stream of a JSON header and the columns it names, as base64.

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

Column = dict[str, Any]


class Columns:
    """Collects columns and lays out their bytes.

    Example: `columns = Columns(); columns.add(np.array([1, 2]))` is {"type": "u1", "at": 0, "length": 2}.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._known: dict[tuple[str, bytes], Column] = {}

    def add(self, values: NDArray[Any]) -> Column:
        """The header's entry of a column of integers, truths or numbers (NaN becomes null in the page)."""
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
