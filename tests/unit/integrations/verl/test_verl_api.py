"""What is used of verl is named in one module, and its check names what another release lacks."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import hgpo.integrations.verl
from hgpo.integrations.verl import verl_api
from hgpo.integrations.verl.verl_api import PARTS, Part, differences, parts, unknown_settings

ROOT = Path(__file__).parents[4]
FOLDER = Path(hgpo.integrations.verl.__file__).parent
API = f"{hgpo.integrations.verl.__name__}.{Path(verl_api.__file__).stem}"
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.py"))}
OTHERS = {path: tree for path, tree in TREES.items() if path.stem != "verl_api"}
TABLE = tuple(parts(PARTS))
needs_verl = pytest.mark.skipif(find_spec("verl") is None, reason="verl is not installed: pip install 'hgpo[verl]'")
OF_EVERY_CLASS = {"__module__", "__doc__", "__abstractmethods__", "_abc_impl", "__annotations__", "__slots__"}
CLASSES = ("agent_loop", "agent_workers", "cpu", "cpu_weights", "critic", "trainer", "trainers")


def nodes(kind: type[ast.AST]) -> Iterator[tuple[Path, Any]]:
    """The nodes of one kind in all modules but the one, each with its file."""
    return ((path, node) for path, tree in OTHERS.items() for node in ast.walk(tree) if isinstance(node, kind))


def asked_for() -> set[str]:
    """The names that other modules take from the one."""
    imported = {alias.name for _, node in nodes(ast.ImportFrom) if node.module == API for alias in node.names}
    read = {node.attr for _, node in nodes(ast.Attribute) if ast.unparse(node.value) == "verl_api"}
    return imported | read


def replaced() -> set[str]:
    calls = (node for _, node in nodes(ast.Call) if ast.unparse(node.func).removeprefix("verl_api.") == "replace")
    return {node.args[0].value for node in calls if isinstance(node.args[0], ast.Constant)}  # else that of dataclasses


# ---- the one module ------------------------------------------------------------------------------------------------


def test_no_other_module_imports_verl_or_transfer_queue() -> None:
    named = [(path, alias.name) for path, node in nodes(ast.Import) for alias in node.names]
    named += [(path, node.module or "") for path, node in nodes(ast.ImportFrom) if not node.level]
    named += [
        (path, argument.value)
        for path, node in nodes(ast.Call)
        if ast.unparse(node.func).rpartition(".")[2] in ("import_module", "files", "__import__")
        for argument in node.args[:1]
        if isinstance(argument, ast.Constant)
    ]
    assert len(named) > 100
    assert [(path.name, name) for path, name in named if name.split(".")[0] in ("verl", "transfer_queue")] == []


def test_every_name_that_others_ask_for_is_in_the_table_and_none_is_left_over() -> None:
    own = {name for name in vars(verl_api) if not name.startswith("__")}
    assert asked_for() - own == asked_for() & verl_api._places().keys()
    assert {target.partition(".")[0] for target in replaced()} <= verl_api._places().keys()
    text = "\n".join(path.read_text(encoding="utf-8") for path in OTHERS)
    for part in TABLE:
        # What is called on a worker group, or stands for its class in the table, is named by its last part alone.
        used = {part.alias, part.name.rpartition(".")[2].strip("'")}
        assert any(re.search(rf"\b{re.escape(name)}\b", text) for name in used), f"nothing uses {part.name}"


def test_every_private_name_of_another_package_is_in_the_table() -> None:
    """`self._x` and `object._x` of names that no module here defines."""
    defined = {node.name for kind in (ast.FunctionDef, ast.AsyncFunctionDef) for _, node in nodes(kind)}
    set_on_self = (node for _, node in nodes(ast.Attribute) if isinstance(node.ctx, ast.Store))
    defined |= {node.attr for node in set_on_self if ast.unparse(node.value) == "self"}
    defined |= {node.target.id for _, node in nodes(ast.AnnAssign) if isinstance(node.target, ast.Name)}
    known = {part.name.rpartition(".")[2].strip("'") for part in TABLE}
    of_others = {"_exit"}  # Python's
    found = {node.attr for _, node in nodes(ast.Attribute) if re.match(r"_[^_]", node.attr)}
    assert found - defined - known - of_others == set()


def test_it_loads_nothing_before_a_name_is_asked_for() -> None:
    code = (
        "import sys; from hgpo.integrations.verl import preflight, verl_api; verl_api.differences(); "
        "sys.exit(str([name for name in ('torch', 'ray', 'verl', 'transfer_queue', 'vllm') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def test_the_releases_are_those_of_the_package_and_of_the_tested_environment() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert verl_api.SUPPORTED in extras["verl"]
    tested = (ROOT / "constraints-verl.txt").read_text(encoding="utf-8").lower().split()
    assert {name.strip("'").lower() for name in verl_api.TESTED.split()} <= set(tested)


def test_an_unknown_name_is_no_attribute() -> None:
    assert not hasattr(verl_api, "PPOTrainerOfTomorrow")


# ---- the check -----------------------------------------------------------------------------------------------------

SOURCES = {
    "__init__": "from .inner import *\nfrom .inner import Engine as Machine\nfrom torch import CPUOffloadPolicy\n",
    "inner": """
from . import base
from .base import Base
if base.FAST:
    from .base import conditional
LIMIT: int = 3
def plain(a, b, *, c=1): ...
class Engine(Base):
    async def own(self, a, *args, b, **rest): ...
    @staticmethod
    def free(x): ...
""",
    "base": """
FAST = True
def conditional(x, y=2): "a text"
class Base:
    def __init__(self, config, size=1):
        self.kept: int = size
        local = config
    def inherited(self, a): ...
""",
}


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with these sources, which cannot be imported."""
    package = f"pretended_{tmp_path.name}".replace("-", "_")
    for name, text in SOURCES.items():
        path = tmp_path / package / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text}\nraise RuntimeError('imported')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return package


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("plain(a, b, c)", ""),
        ("plain(a, b, ...)", ""),
        ("plain(a, ...)", "plain(a, b, c) instead of (a, ...)"),
        ("plain(b, a, ...)", "plain(a, b, c) instead of (b, a, ...)"),
        ("plain(a, b)", "plain(a, b, c) instead of (a, b)"),
        ("plain(...)", "plain(a, b, c) instead of (...)"),
        ("plain", ""),
        ("gone", "no PACKAGE.gone"),
        ("conditional(x, ...)", ""),
        ("LIMIT", ""),
        ("LIMIT(a)", "LIMIT(...) instead of (a)"),
        ("CPUOffloadPolicy", ""),
        ("Machine(config, ...)", ""),
        ("Machine(config)", "Machine(config, size) instead of (config)"),
        ("Engine: own(a, *args, b, **rest) free(x) inherited(a) kept", ""),
        ("Engine: local", "no PACKAGE.Engine.local"),
        ("Engine: inherited(a, b)", "Engine.inherited(a) instead of (a, b)"),
        ("plain: kept", "no PACKAGE.plain.kept"),
        ("Gone: kept", "no PACKAGE.Gone.kept"),
    ],
)
def test_what_differs_is_named_with_its_use(pretended: str, entry: str, problem: str) -> None:
    [found] = differences(f"{pretended}: {entry}  # trainer")[:1] or [""]
    expected = problem.replace("PACKAGE", pretended)
    assert found == (
        f"{expected if problem.startswith('no ') else f'{pretended}.{expected}'} (trainer)" if problem else ""
    )


def test_texts_modules_and_packages(pretended: str) -> None:
    table = f"{pretended}.base: 'a text' 'another'  # head\n{pretended}.gone: x  # cpu\nnever_installed.a: b  # cpu"
    assert differences(table) == (f"no 'another' in {pretended}.base (head)", f"no {pretended}.gone.x (cpu)")


def test_a_line_has_the_use_of_its_module_or_its_own() -> None:
    table = "a.b: one(x) two as three  # of all\n    Four: five six()  # of these\n    'seven'"
    assert tuple(parts(table)) == (
        Part("a.b", "one", "x", "one", "of all"),
        Part("a.b", "two", None, "three", "of all"),
        Part("a.b", "Four.five", None, "Four", "of these"),
        Part("a.b", "Four.six", "", "Four", "of these"),
        Part("a.b", "'seven'", None, "'seven'", "of all"),
    )


# ---- the installed release -----------------------------------------------------------------------------------------


@needs_verl
def test_the_installed_release_is_what_this_is_written_for() -> None:
    assert differences() == ()


@needs_verl
def test_a_missing_part_and_other_parameters_are_named_among_all_others() -> None:
    added = (
        "verl.trainer.ppo.v1:  # trainer\n    PPOTrainer: step(metrics) leap()\nverl.utils.metric: reduce(x)  # critic"
    )
    assert differences(f"{PARTS}{added}") == (
        "verl.trainer.ppo.v1.PPOTrainer.step(metrics, timing_raw) instead of (metrics) (trainer)",
        "no verl.trainer.ppo.v1.PPOTrainer.leap (trainer)",
        "no verl.utils.metric.reduce (critic)",
    )


@needs_verl
def test_a_name_that_verl_lacks_is_an_error_with_the_supported_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(verl_api._places(), "rename_all", ("verl.utils.py_functional", "rename_all"))
    with pytest.raises(
        ImportError, match=r"no verl\.utils\.py_functional\.rename_all; hgpo supports verl>=0\.9\.1,<0\.10"
    ):
        importlib.import_module(API).rename_all  # noqa: B018


@needs_verl
def test_what_is_replaced_is_replaced_where_verl_looks_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import verl.utils.py_functional as module

    original = module.rename_dict
    monkeypatch.setattr(module, "rename_dict", original)  # puts it back
    assert verl_api.replace("rename_dict", len) is original
    assert module.rename_dict is verl_api.rename_dict is len


@needs_verl
def test_settings_that_verl_lacks_are_named() -> None:
    settings = verl_api.default_settings()
    known = [*verl_api.READ_SETTINGS, "critic.model.override_config.attn_implementation", *verl_api.LEFT_OUT]
    unknown = ["trainer.gone", "gone.override_config.x", "trainer.nnodes.x", "trainer.nnodes.x.y"]
    assert unknown_settings(settings, [*known, *unknown]) == unknown


@needs_verl
def test_every_part_of_verl_that_a_class_overrides_is_in_the_table() -> None:
    known, found = {part.name for part in TABLE}, []
    for name in CLASSES:
        module = importlib.import_module(f"hgpo.integrations.verl.{name}")
        for value in vars(module).values():
            if inspect.isclass(value) and value.__module__ == module.__name__:
                bases = [base for base in value.__mro__ if base.__module__.startswith("verl.")]
                over = {name for base in bases for name in vars(base) if name in vars(value)} - OF_EVERY_CLASS
                found += [(value.__name__, name, {f"{base.__name__}.{name}" for base in bases}) for name in over]
    assert len(found) > 50
    assert [one[:2] for one in found if not one[2] & known] == []
