import sys
from types import ModuleType

import pytest

from corridor import CorridorSuite
from hgpo.envs import make, names, register, registry


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    monkeypatch.setattr(registry.SUITES, "_parts", {})


def test_a_registered_name_makes_a_suite_with_its_options():
    register("corridor", CorridorSuite)
    assert make("corridor", longest=3).tasks("train")[-1].id == "train/3"
    assert "corridor" in names()


def test_a_module_path_needs_no_registration():
    assert make("corridor:CorridorSuite").splits == ("train", "held_out")


def test_a_function_that_says_it_makes_suites_will_do(monkeypatch):
    module = ModuleType("my_corridors")

    def corridors(longest: int = 3) -> CorridorSuite:
        return CorridorSuite(longest)

    module.corridors = corridors
    monkeypatch.setitem(sys.modules, "my_corridors", module)
    assert make("my_corridors:corridors", longest=5).tasks("train")[-1].id == "train/5"


def test_an_option_may_be_called_name(monkeypatch):
    module = ModuleType("named_corridors")

    def corridors(name: str) -> CorridorSuite:
        return CorridorSuite(len(name))

    module.corridors = corridors
    monkeypatch.setitem(sys.modules, "named_corridors", module)
    assert make("named_corridors:corridors", name="three").tasks("train")[-1].id == "train/5"


def test_what_is_not_declared_is_not_called(tmp_path):
    written = tmp_path / "written"
    with pytest.raises(ValueError, match="so it is not called"):
        make("os:mkdir", path=str(written))
    assert not written.exists()


def test_an_installed_entry_point_is_found():
    assert "alfworld" in names()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("corridors", "unknown environment 'corridors'; known: "),
        ("no_such_module:factory", "cannot import 'no_such_module'"),
        ("corridor:Nothing", "'corridor' has no 'Nothing'"),
        ("os:system", "'system' is neither a class with `splits` and `tasks` nor"),
        ("subprocess:Popen", "'Popen' is neither a class"),
        ("shutil:rmtree", "'rmtree' is neither a class"),
    ],
)
def test_what_cannot_be_found_is_named(name, message):
    with pytest.raises(ValueError, match=message):
        make(name)


def test_an_option_nobody_reads_is_refused():
    with pytest.raises(ValueError, match=r"has no option length; it takes longest, splits"):
        make("corridor:CorridorSuite", length=3)


def test_an_option_that_the_suite_needs_is_named(monkeypatch):
    module = ModuleType("my_levels")

    def levels(level: int, *, seed: int) -> CorridorSuite:
        return CorridorSuite(level + seed)

    module.levels = levels
    monkeypatch.setitem(sys.modules, "my_levels", module)
    with pytest.raises(ValueError, match=r"^environment 'my_levels:levels' needs the options level, seed$"):
        make("my_levels:levels")
    assert make("my_levels:levels", level=2, seed=1).tasks("train")[-1].id == "train/3"


def test_a_taken_name_is_refused():
    register("corridor", CorridorSuite)
    with pytest.raises(ValueError, match="already registered"):
        register("corridor", lambda: CorridorSuite())
