"""What an action says, against the published pattern."""

from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from hgpo.envs.webshop.env import parse_action

PUBLISHED = re.compile(r"(.+)\[(.+)\]")


@given(st.text(alphabet="a[]\n \u2028\r", max_size=12))
def test_actions_are_read_as_by_the_published_pattern(action: str) -> None:
    found = PUBLISHED.match(action)
    assert parse_action(action) == (found and found.groups())


def test_a_page_full_of_brackets_takes_no_time() -> None:
    began = time.monotonic()
    for action in ("[" * 65_000, "a" + "[" * 65_000 + "]", "[]" * 32_000, "]" * 65_000):
        parse_action(action)
    assert time.monotonic() - began < 0.5
