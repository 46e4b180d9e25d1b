"""Every setting is read by the engines that `hgpo.config.loading` says, and refused where none would read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, Field

import hgpo
from hgpo.config import Config, ConfigError, TrainingSettings, WarmStartSettings, read_config
from hgpo.config import loading as engines
from hgpo.config.loading import ENGINES, engines_of, leaves
from settings_reads import settings_read, settings_read_in

SOURCE = Path(hgpo.__file__).parent
OWN = {"built-in": ["training", "assemble.py"], "verl": ["integrations/verl"]}
OF_UPDATES = ("training.", "critic.", "policy.lora.")
# `Config.recomputes_log_probs` and `hgpo.runs.trust` ask only where the engine is verl
ANSWERED_FOR_BOTH = {"verl.mode", "verl.rollout", "verl.ray_address"}
START = ("load", "start_policy", "warm_start")  # the start of a run is the same on either engine
# What an engine runs beside its own room. Settings of the update and of what is trained in it are left out of that:
# others only tell of them, or read them on behalf of the engine that may have them.
BESIDE = {
    "built-in": ["runs", "rollout", "evaluation"],
    "verl": ["assemble.py", "runs", "rollout", "evaluation", *(f"training/{name}.py" for name in START)],
}
MODEL = 'policy.model="some/model"'


class MoreTraining(TrainingSettings):
    new_option: int = Field(1, description="Somebody's new idea.")


class MoreConfig(Config):
    training: MoreTraining = MoreTraining()


def files(places: list[str]) -> Iterator[Path]:
    for place in places:
        found = [SOURCE / place] if place.endswith(".py") else sorted((SOURCE / place).rglob("*.py"))
        assert found, f"{place} is gone: say where the engine's code is now"
        yield from found


def read_by(engine: str, root: type[BaseModel] = Config) -> set[str]:
    own = settings_read_in(files(OWN[engine]), root)
    beside = settings_read_in(files(BESIDE[engine]), root)
    return own | {name for name in beside if not name.startswith(OF_UPDATES)}


def names(root: type[BaseModel] = Config) -> set[str]:
    return {name for name, _, _ in leaves(root(warm_start=WarmStartSettings(enabled=True)))}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_what_is_said_of_it_and_nothing_else(engine: str) -> None:
    """A setting that is missing here: read it (verl: map it in integrations/verl), or name it in config/loading.py."""
    said = {name for name in names() if engine in engines_of(name)}
    assert said - read_by(engine) == set()
    assert read_by(engine) - said - ANSWERED_FOR_BOTH == set()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_option_that_is_added_and_read_nowhere_is_found(engine: str) -> None:
    assert names(MoreConfig) - read_by(engine, MoreConfig) >= {"training.new_option"}
    assert names(MoreConfig) - names() == {"training.new_option"}


def test_what_is_named_is_a_setting_or_a_section() -> None:
    assert [name for name in engines.ONLY if not any(f"{known}.".startswith(f"{name}.") for known in names())] == []


@pytest.mark.parametrize(
    "source",
    [
        "config.training.updates",
        "self.recipe.training.updates",
        "def f(settings: TrainingSettings): return settings.updates",
        "settings = self.config.training\nsettings.updates",
        "other, settings = 1, config.training\nsettings.updates",
        "class A:\n  def __init__(self, s: MoreTraining): self._s = s\n  def f(self): return self._s.updates",
    ],
)
def test_a_read_is_seen_however_it_is_written(source: str) -> None:
    assert settings_read(source, MoreConfig) == {"training.updates"}


@pytest.mark.parametrize(
    "source",
    [
        "other.training.updates",
        "def f(settings: Other): return settings.updates",
        "settings = config.training\ndef f(settings: Other): return settings.updates",
        "self.config.trainer.updates",
        "config.training",
        "config.run.updates",
    ],
)
def test_what_is_called_alike_is_no_read(source: str) -> None:
    assert settings_read(source, Config) == set()


def test_a_property_of_the_settings_reads_what_it_is_made_of() -> None:
    assert settings_read("config.run_directory", Config) == {"run.directory", "run.name"}


def test_a_setting_of_the_other_engine_is_refused_once_it_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engines.ONLY, "rollout.store_every", "built-in")
    assert read_config(None, [MODEL, "rollout.store_every=2"]).rollout.store_every == 2
    assert read_config(None, [MODEL, "run.engine=verl", "rollout.store_every=1"]).rollout.store_every == 1
    message = "rollout.store_every = 2 is used only by the engine 'built-in', and run.engine is 'verl'"
    with pytest.raises(ConfigError, match=message):
        read_config(None, [MODEL, "run.engine=verl", "rollout.store_every=2"])


def test_the_table_of_an_engine_may_stand_with_another() -> None:
    """One recipe serves both."""
    assert engines_of("verl.nodes") == ("verl",)
    assert read_config(None, [MODEL, "verl.nodes=2"]).run.engine == "built-in"
