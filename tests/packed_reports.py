"""Reads the packed data of a report, as the page does."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgpo.report.document import Column


def unpack(packed: str) -> tuple[dict[str, Any], bytes]:
    """The header and the bytes of the columns."""
    raw = zlib.decompress(base64.b64decode(packed, validate=True))
    (length,) = struct.unpack_from("<I", raw)
    return json.loads(raw[4 : 4 + length]), raw[4 + length :]


def read_column(column: Column, stored: bytes) -> NDArray[Any]:
    """The values of one column of an unpacked payload."""
    dtype = np.dtype(column["type"]).newbyteorder("<")
    size = column["length"] * dtype.itemsize
    planes = np.frombuffer(stored, np.uint8, size, column["at"]).reshape(dtype.itemsize, column["length"])
    return np.ascontiguousarray(planes.T).reshape(-1).view(dtype)
