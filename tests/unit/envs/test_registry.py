import pytest

from corridor import CorridorSuite
from hgpo.envs import make, names, register, registry


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


def test_a_registered_name_makes_a_suite_with_its_options():
    register("corridor", CorridorSuite)
    assert make("corridor", longest=3).tasks("train")[-1].id == "train/3"
    assert "corridor" in names()


def test_a_module_path_needs_no_registration():
    assert make("corridor:CorridorSuite").splits == ("train", "held_out")


def test_an_installed_entry_point_is_found():
    assert "alfworld" in names()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("corridors", "unknown environment 'corridors'; known: "),
        ("no_such_module:factory", "cannot import 'no_such_module'"),
        ("corridor:Nothing", "'corridor' has no callable 'Nothing'"),
    ],
)
def test_what_cannot_be_found_is_named(name, message):
    with pytest.raises(ValueError, match=message):
        make(name)


def test_an_option_nobody_reads_is_refused():
    with pytest.raises(ValueError, match=r"has no option length; it takes longest, splits"):
        make("corridor:CorridorSuite", length=3)


def test_a_taken_name_is_refused():
    register("corridor", CorridorSuite)
    with pytest.raises(ValueError, match="already registered"):
        register("corridor", lambda: CorridorSuite())
