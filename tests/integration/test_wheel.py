"""The package as somebody without a checkout has it: built, installed into an empty environment, and used from there.

What hgpo depends on is borrowed from the environment that runs the tests; hgpo itself comes from the wheel, which is
made from the unpacked sdist.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

import readme

pytest.importorskip("hatchling", reason="the build backend is no package of this environment: pip install 'hgpo[dev]'")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# The pip path of README.md, made small enough to take seconds.
SMALL = [
    *("environment.options.train_games=40", "environment.options.valid_seen_games=4"),
    *("environment.options.valid_unseen_games=4", "warm_start.demonstrations=20", "warm_start.probe_games=4"),
    *("warm_start.max_updates=2", "warm_start.evaluate_every=2", "policy.tiny.hidden_size=16", "policy.tiny.layers=1"),
    *("rollout.tasks_per_update=1", "rollout.group_size=2", "training.updates=1", "run.threads=1"),
]


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and a folder that is no checkout."""

    programs: Path
    folder: Path

    def run(self, program: str, *words: str) -> str:
        """What a program of the environment printed; it knows the wheel alone."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HGPO_"))}
        done = subprocess.run(
            [str(self.programs / program), *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def python(self, *words: str) -> str:
        return self.run("python", *words)

    def hgpo(self, *words: str) -> str:
        return self.run("hgpo", *words)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    folder = tmp_path_factory.mktemp("built")
    build(ROOT, "sdist", folder)
    [sdist] = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    [unpacked] = (folder / "unpacked").iterdir()
    build(unpacked, "wheel", folder)
    [wheel] = folder.glob("*.whl")
    return wheel


def build(project: Path, target: str, into: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)]
    environment = {name: value for name, value in os.environ.items() if name != "HGPO_REPOSITORY"}
    subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True)


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    place = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place / "venv")], check=True)
    site = place / "venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", str(built)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(place / "venv"), *install], check=True)
    # Folders named in a .pth file come after `site`, and .pth files in them are not read: no editable install is seen.
    borrowed = {sysconfig.get_path("purelib"), *(path for path in sys.path if Path(path).name == "site-packages")}
    (site / "borrowed.pth").write_text("".join(f"{path}\n" for path in sorted(borrowed)), encoding="utf-8")
    folder = place / "elsewhere"
    folder.mkdir()
    return Installed(place / "venv" / "bin", folder)


@pytest.fixture(scope="module")
def trained(installed: Installed) -> str:
    """What `hgpo train --env alfworld` prints; the run is runs/quickstart."""
    return installed.hgpo("train", "--env", "alfworld", *SMALL)


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def test_the_wheel_has_all_recipes_and_nothing_beside_the_package(built: Path) -> None:
    with ZipFile(built) as wheel:
        names = wheel.namelist()
    recipes = {path.relative_to(ROOT / "recipes").as_posix() for path in (ROOT / "recipes").rglob("*.toml")}
    assert {name.removeprefix("hgpo/recipes/") for name in names if name.startswith("hgpo/recipes/")} == recipes
    assert {name.partition("/")[0] for name in names} == {"hgpo", f"hgpo-{metadata(built)['Version']}.dist-info"}


def test_the_index_is_told_what_it_shows(built: Path) -> None:
    told = metadata(built)
    assert told["Description-Content-Type"] == "text/markdown"
    assert "pip install '.[train]'" in told.get_payload()
    assert any(url.startswith("Paper, ") for url in told.get_all("Project-URL", []))
    assert {"train", "completion", "lora"} <= set(told.get_all("Provides-Extra", []))


def test_hgpo_comes_from_the_wheel(installed: Installed, built: Path) -> None:
    where = Path(installed.python("-c", "import hgpo; print(hgpo.__file__)").strip())
    assert where.is_relative_to(installed.programs.parent)
    assert installed.python("-m", "hgpo", "--version") == f"hgpo {metadata(built)['Version']}\n"


def test_recipes_are_found_by_name(installed: Installed) -> None:
    assert 'name = "quickstart"' in installed.hgpo("train", "quickstart", "--dry-run")
    assert "webshop-tiny" in installed.hgpo("train", "--help")
    extended = installed.hgpo("train", "language-models/webshop", "--dry-run")
    assert 'template = "shop-reasoning"' in extended
    assert "learning_rate = 1e-06" in extended


def test_the_pip_path_trains_evaluates_and_is_looked_into(installed: Installed, trained: str) -> None:
    assert "hgpo: success on 4 held-out tasks" in trained
    run = installed.folder / "runs" / "quickstart"
    assert (run / "checkpoints" / "1" / "model.safetensors").is_file()
    assert "success" in installed.hgpo("eval", "runs/quickstart", "--games", "2")
    installed.hgpo("inspect", "runs/quickstart")
    assert (run / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("example", readme.examples(), ids=lambda example: example.prints[0])
def test_the_examples_of_the_readme(example: readme.Example, installed: Installed) -> None:
    assert installed.python("-c", example.code).splitlines() == list(example.prints)
