"""Reading the parenthesised text that PDDL is written in, without recursion and within bounds."""

from __future__ import annotations

import re
from typing import TypeAlias

Expression: TypeAlias = "str | list[Expression]"

MAX_DEPTH = 64

_TOKENS = re.compile(r";[^\n]*|[()]|[^\s();]+")


class ExpressionError(ValueError):
    """Text that is not one well-formed, reasonably nested expression."""


def parse_expression(source: str) -> list[Expression]:
    """Parse one `(...)` expression into nested lists of words; comments run from `;` to the end of the line.

    Example: `parse_expression("(and (p ?x))")` is `["and", ["p", "?x"]]`.
    """
    root: list[Expression] = []
    current = root
    open_lists: list[list[Expression]] = []
    for token in _TOKENS.findall(source):
        if token == "(":
            if len(open_lists) == MAX_DEPTH:
                raise ExpressionError(f"parentheses are nested more than {MAX_DEPTH} deep")
            inner: list[Expression] = []
            current.append(inner)
            open_lists.append(current)
            current = inner
        elif token == ")":
            if not open_lists:
                raise ExpressionError("a closing parenthesis has no opening one")
            current = open_lists.pop()
        elif token[0] != ";":
            current.append(token)
    if open_lists:
        raise ExpressionError(f"{len(open_lists)} parentheses are never closed")
    if len(root) != 1 or not isinstance(root[0], list):
        raise ExpressionError(f"expected one parenthesised expression, found {len(root)} items")
    return root[0]
