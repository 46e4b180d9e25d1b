"""Reading large JSON files record by record. What is wrong with a file is said with its name and place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

_CHUNK = 1 << 22  # characters
_LARGEST_RECORD = 1 << 26


def read_mapping(path: Path) -> Mapping[str, Any]:
    """A JSON object whose values are objects or lists. `ValueError` for anything else."""
    with _opened(path) as file:
        try:
            content = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: holds a {type(content).__name__}, expected an object with one entry per product")
    for key, value in content.items():
        if not isinstance(value, dict | list):
            raise ValueError(f"{path}: the entry of {key!r} is {type(value).__name__}, expected an object or a list")
    return content


def iterate_records(path: Path) -> Iterator[Any]:
    """The elements of a JSON list, one at a time: a file of gigabytes needs the memory of a few elements.

    `ValueError` where the file stops being a JSON list, with the number of the element.
    """
    with _opened(path) as file:
        reader = _Reader(file)
        number = 0
        try:
            reader.take("[", "a list of products")
            while reader.next_character() != "]":
                if number:
                    reader.take(",", "a comma or the end of the list")
                yield reader.value()
                number += 1
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, _NotAList) as error:
            raise ValueError(f"{path}, element {number}: not a valid JSON list ({error})") from error


class _NotAList(Exception):
    """Something else stands where the list goes on."""


class _Reader:
    """Reads JSON values from a file, a chunk at a time."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._buffer = ""
        self._position = 0
        self._decoder = json.JSONDecoder()

    def next_character(self) -> str:
        """What comes after white space; empty at the end of the file."""
        while True:
            while self._position < len(self._buffer):
                if not self._buffer[self._position].isspace() and self._buffer[self._position] != "\ufeff":
                    return self._buffer[self._position]
                self._position += 1
            if not self._read_on():
                return ""

    def take(self, character: str, expected: str) -> None:
        found = self.next_character()
        if found != character:
            raise _NotAList(f"expected {expected}, found {found!r}" if found else f"expected {expected}, the file ends")
        self._position += 1

    def value(self) -> Any:
        self.next_character()
        while True:
            try:
                value, self._position = self._decoder.raw_decode(self._buffer, self._position)
            except json.JSONDecodeError:
                # The value may only be cut off by the chunk's end.
                if len(self._buffer) - self._position > _LARGEST_RECORD or not self._read_on():
                    raise
            else:
                return value

    def _read_on(self) -> bool:
        more = self._file.read(_CHUNK)
        self._buffer, self._position = self._buffer[self._position :] + more, 0
        return bool(more)


def _opened(path: Path) -> TextIO:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; WebShop's setup script downloads its catalogue files")
    return path.open(encoding="utf-8")
