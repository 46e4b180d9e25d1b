"""Many short texts in one memory-mapped file, with an array of where each begins."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray


def memory_map(path: Path) -> NDArray[Any]:
    """A `.npy` file as an array that is read when used and shared between processes.

    It is a plain view: the subclass for mapped arrays takes several times as long to cut a slice.

    Raises:
        ValueError: It is no such file, or truncated.
        OSError: It cannot be read.
    """
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)  # type: ignore[no-any-return]
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path.name}: {error}") from error


def is_partition(start_N1: NDArray[Any], values_V: NDArray[Any]) -> bool:
    """Whether `start_N1` (int64) divides the 1-D array `values_V` into N consecutive slices."""
    if start_N1.dtype != np.int64 or start_N1.ndim != 1 or values_V.ndim != 1 or not len(start_N1):
        return False
    return bool(start_N1[0] == 0 and start_N1[-1] == len(values_V) and np.all(np.diff(start_N1) >= 0))


class TextArray(Sequence[str]):
    """A sequence of texts that costs no Python object until one is asked for.

    Example: `TextArray.of(["apple", "pear"])[1] == "pear"`; `find` needs texts sorted by their UTF-8 bytes.
    """

    def __init__(self, content: NDArray[np.uint8], start_N1: NDArray[np.int64]) -> None:
        self._content = content
        self._start_N1 = start_N1

    @classmethod
    def of(cls, texts: Iterable[str]) -> TextArray:
        """Texts held in memory."""
        encoded = [text.encode() for text in texts]
        start_N1 = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=start_N1[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), start_N1)

    def save(self, path: Path) -> None:
        """Write `<path>.npy` (all bytes) and `<path>_start.npy`."""
        np.save(path.with_name(f"{path.name}.npy"), self._content, allow_pickle=False)
        np.save(path.with_name(f"{path.name}_start.npy"), self._start_N1, allow_pickle=False)

    @classmethod
    def open(cls, path: Path) -> TextArray:
        """Map what `save` wrote.

        Raises:
            ValueError: A file is no array, or the starts do not divide the bytes.
        """
        content, start_N1 = (memory_map(path.with_name(f"{path.name}{end}.npy")) for end in ("", "_start"))
        if content.dtype != np.uint8 or not is_partition(start_N1, content):
            raise ValueError(f"{path.name}_start.npy does not divide {path.name}.npy")
        return cls(content, start_N1)

    def find(self, text: str) -> int | None:
        """The position of a text, by binary search, or None."""
        wanted = text.encode()
        number = bisect_left(range(len(self)), wanted, key=self._bytes)
        return number if number < len(self) and self._bytes(number) == wanted else None

    def __len__(self) -> int:
        return len(self._start_N1) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self._bytes(range(len(self))[index]).decode()

    def _bytes(self, number: int) -> bytes:
        return self._content[self._start_N1[number] : self._start_N1[number + 1]].tobytes()
