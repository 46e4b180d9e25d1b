from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.envs.alfworld.tw_pddl.problem import MAX_DEPTH, Expression, ExpressionError, parse_expression


def test_nested_lists_and_comments() -> None:
    assert parse_expression("(and (p ?x) ; (not read)\n (q))") == ["and", ["p", "?x"], ["q"]]


def test_depth_is_bounded() -> None:
    assert parse_expression("(" * MAX_DEPTH + ")" * MAX_DEPTH)
    with pytest.raises(ExpressionError, match="nested more than 64 deep"):
        parse_expression("(" * 100_000)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("(a", "1 parentheses are never closed"),
        ("(a))", "no opening one"),
        ("", "found 0 items"),
        ("word", "found 1 items"),
        ("(a) (b)", "found 2 items"),
    ],
)
def test_malformed_text_is_refused(source: str, problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        parse_expression(source)


words = st.text(st.characters(codec="ascii", exclude_characters=" \t\n\r\x0b\x0c();\x1c\x1d\x1e\x1f"), min_size=1)
expressions = st.lists(st.recursive(words, st.lists, max_leaves=20))


@given(expressions)
def test_reads_back_what_was_written(expression: list[Expression]) -> None:
    assert parse_expression(_write(expression)) == expression


@given(st.text())
def test_any_text_is_read_or_refused(source: str) -> None:
    with suppress(ExpressionError):
        parse_expression(source)


def _write(expression: Expression) -> str:
    return expression if isinstance(expression, str) else f"({' '.join(map(_write, expression))})"
