import sys
from types import ModuleType

import pytest

from hgpo.plugins import Registry, import_named, names_module


def number_problem(part):
    return None if isinstance(part, int) else "is no number"


@pytest.fixture
def registry():
    return Registry("number", "hgpo.no_such_group", {"three": "numbers_that_are_built_in:THREE"}, check=number_problem)


@pytest.fixture
def built_in(monkeypatch):
    module = ModuleType("numbers_that_are_built_in")
    module.THREE = 3
    monkeypatch.setitem(sys.modules, "numbers_that_are_built_in", module)


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A module that leaves a trace when it is imported."""
    (tmp_path / "outside_numbers.py").write_text("open('imported', 'w').close()\nFOUR = 4\nWORD = 'four'\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "imported"
    sys.modules.pop("outside_numbers", None)


def test_a_registered_part_is_found_and_listed(registry):
    registry.register("two", 2)
    assert registry.get("two") == 2
    assert registry.names() == ["three", "two"]


def test_a_taken_name_is_refused_and_the_same_part_is_not(registry):
    registry.register("two", 2)
    registry.register("two", 2)
    for name in ("two", "three"):
        with pytest.raises(ValueError, match=f"number {name!r} is already registered"):
            registry.register(name, 22)


def test_a_built_in_part_is_imported_when_it_is_first_asked_for(registry, built_in):
    assert registry.get("three") == 3
    assert registry.loaded("three") == 3


def test_a_built_in_name_is_known_without_an_import(registry):
    registry.check("three")
    with pytest.raises(ValueError, match="number 'three': cannot import 'numbers_that_are_built_in'"):
        registry.get("three")


@pytest.mark.parametrize("path", [".x:y", ":y", "..:y", "a..b:y", "a.:y"])
def test_a_path_without_a_modules_name_is_refused(registry, path):
    for ask in (registry.get, registry.check, lambda name: import_named([name])):
        with pytest.raises(ValueError, match=r"is not the name of a module; write 'package\.module:attribute'"):
            ask(path)


def test_a_path_is_imported_from_the_working_folder(registry, outside):
    assert registry.get("outside_numbers:FOUR") == 4
    assert outside.exists()
    assert registry.names() == ["three"]  # a path is no name


def test_reading_what_is_there_imports_nothing(registry, outside):
    assert registry.loaded("outside_numbers:FOUR") is None
    assert registry.loaded("unknown") is None
    assert not outside.exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("five", "unknown number 'five'; known: three. Custom: an entry point in the group 'hgpo.no_such_group', or"),
        ("no_such_module:FIVE", "cannot import 'no_such_module' .*; it must be installed, or a file in the w"),
        ("outside_numbers:FIVE", "'outside_numbers' has no 'FIVE'"),
        ("outside_numbers:WORD", "number 'outside_numbers:WORD': 'WORD' is no number"),
        (5, "unknown number 5; known: three"),
        (["three"], "unknown number"),
    ],
)
def test_what_cannot_be_found_is_named(registry, outside, name, message):
    for look_up in (registry.get, registry.check):
        with pytest.raises(ValueError, match=message):
            look_up(name)


def test_modules_of_paths_are_imported_for_what_they_register(outside):
    import_named(["alfworld", "outside_numbers:ANYTHING"])
    assert outside.exists()
    with pytest.raises(ValueError, match="cannot import 'no_such_module'"):
        import_named(["no_such_module:THING"])


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("FOUR", None),
        ("WORD", r"number 'installed': 'installed_numbers:WORD' is no number"),
        ("WRD", r"number 'installed': 'installed_numbers' has no 'WRD'; did you mean WORD?"),
        ("FOUR.real", None),
        (None, r"number 'installed': 'installed_numbers' has no ''"),
        ("FAILS", r"number 'installed': cannot import 'installed_numbers' \(SystemExit: 3\)"),
    ],
)
def test_what_a_package_lists_is_checked_when_it_is_looked_up(registry, tmp_path, monkeypatch, attribute, message):
    metadata = tmp_path / "numbers-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: numbers\nVersion: 1.0\n")
    point = "installed_numbers" + f":{attribute}" * (attribute is not None)
    (metadata / "entry_points.txt").write_text(f"[hgpo.no_such_group]\ninstalled = {point}\n")
    ends = "raise SystemExit(3)\n" * (attribute == "FAILS")
    (tmp_path / "installed_numbers.py").write_text(f"FOUR = 4\nWORD = 'four'\n{ends}")
    monkeypatch.syspath_prepend(tmp_path)
    registry.check("installed")
    assert "installed_numbers" not in sys.modules
    try:
        if message is None:
            assert registry.get("installed") == 4
        else:
            with pytest.raises(ValueError, match=message):
                registry.get("installed")
    finally:
        sys.modules.pop("installed_numbers", None)


def test_a_module_that_exits_is_named(tmp_path, monkeypatch):
    (tmp_path / "exiting.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"cannot import 'exiting' \(SystemExit: 3\)"):
        import_named(["exiting:THING"])


def test_an_address_is_no_module(registry):
    addressed = Registry("part", "no.such.group", addressed={"openenv": "operator:concat"})
    assert addressed.get("openenv:http://here")("/there") == "http://here/there"
    assert addressed.names() == []
    assert not names_module("openenv:http://here")
    assert names_module("package.module:attribute")
    import_named(["openenv:http://here"])
    with pytest.raises(ValueError, match="unknown number"):
        registry.get("openenv:http://here")
