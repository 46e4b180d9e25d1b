from __future__ import annotations

import pytest

from hgpo.utils.text import did_you_mean, suggestions

SETTINGS = ["policy", "policy.lora", "policy.lora.rank", "policy.lora.alpha", "rollout.group_size", "training.updates"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("policy.lora.rnk", ["policy.lora.rank"]),  # misspelt in its section
        ("training.group_size", ["rollout.group_size"]),  # of another section
        ("lora", ["policy.lora"]),  # without the section around it
        ("polcy", ["policy"]),
        ("trainin.updates", ["training.updates"]),  # no such section
        ("training.zzz", []),
        ("zzz", []),
    ],
)
def test_of_settings(given: str, meant: list[str]) -> None:
    assert suggestions(given, SETTINGS) == meant


def test_what_is_much_less_alike_is_left_out() -> None:
    assert suggestions("quikstart", ["quickstart", "start"]) == ["quickstart"]


def test_the_sentence() -> None:
    assert did_you_mean("trian", ["train", "eval"]) == "; did you mean train?"
    assert did_you_mean("a.x", ["b.x", "c.x"]) == "; did you mean b.x or c.x?"
    assert did_you_mean("zzz", ["train"]) == ""
