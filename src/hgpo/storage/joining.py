"""The tables of several files as one.

Files may differ in how wide a number is, whether it is whole, how text is kept, and which columns they have (null where
a file has none). What is a number here and text there is an error, for equal ids would no longer be equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from hgpo.storage.problems import StorageError

_TRUTHS = ("success", "won", "reward", "penalty", "value")  # in these, true counts as 1, so that both may occur


def join_tables(tables: Sequence[pa.Table], files: Sequence[Path]) -> pa.Table:
    """All rows of `tables`, which were read from `files`, in order.

    Raises:
        StorageError: a column is of kinds that do not go together; names the column and two files.
    """
    if len(tables) == 1:
        return tables[0]
    plain = _plainly_typed(tables)
    try:
        return pa.concat_tables(plain, promote_options="permissive")
    except pa.ArrowException as error:
        raise StorageError(_disagreement(plain, files) or f"{files[0].parent}: {error}") from error


def _plainly_typed(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The tables with dictionaries and views as text, and truths as numbers, in columns whose types differ."""
    types: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for field in table.schema:
            types.setdefault(field.name, set()).add(field.type)
    return [_retyped(table, types) for table in tables]


def _retyped(table: pa.Table, types: Mapping[str, set[pa.DataType]]) -> pa.Table:
    for place, field in enumerate(table.schema):
        kind = _plain_type(field.name, field.type, types[field.name])
        if kind != field.type:
            table = table.set_column(place, field.name, table.column(place).cast(kind))
    return table


def _plain_type(name: str, kind: pa.DataType, others: set[pa.DataType]) -> pa.DataType:
    if others == {kind}:
        return kind
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_boolean(kind) and name in _TRUTHS and not others <= {kind, pa.null()}:
        return pa.int8()
    return kind


def _disagreement(tables: Sequence[pa.Table], files: Sequence[Path]) -> str | None:
    """The first column that cannot be joined, as a message."""
    for name in dict.fromkeys(name for table in tables for name in table.column_names):
        seen: dict[pa.DataType, int] = {}
        for place, table in enumerate(tables):
            if name not in table.column_names:
                continue
            kind = table.schema.field(name).type
            for other, first in seen.items() if kind not in seen else ():
                if not _join(tables[first].select([name]), table.select([name])):
                    return (
                        f"{files[place]}: column {name!r} is {kind}, but {other} in {files[first]}; write one kind of "
                        "value in all files: ids as text, numbers without quotes"
                    )
            seen.setdefault(kind, place)
    return None


def _join(first: pa.Table, second: pa.Table) -> bool:
    """Whether the two can be joined."""
    try:
        pa.concat_tables([first, second], promote_options="permissive")
    except pa.ArrowException:
        return False
    return True
