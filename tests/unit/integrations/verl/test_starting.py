"""A warm start in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgpo.assemble import prepare_start, training_suite
from hgpo.config import Config, ConfigError, load_config
from hgpo.integrations.verl.launch import prepare_start_apart
from hgpo.runs.folder import RunDirectory
from hgpo.utils.progress import Reporter

RECIPE = Path(__file__).parents[3] / "corridor.toml"


def config(*overrides: str) -> Config:
    return load_config(RECIPE, ["policy.device=cpu", *overrides])


def directory(path: Path) -> RunDirectory:
    path.mkdir()
    return RunDirectory(path)


@pytest.mark.slow
def test_it_is_the_start_that_would_have_been_made_here(tmp_path: Path) -> None:
    here, apart, quiet = directory(tmp_path / "here"), directory(tmp_path / "apart"), Reporter(quiet=True)
    settings = config()
    suite = training_suite(settings.environment, settings.evaluation, settings.warm_start)
    prepare_start(here, settings, suite, quiet)
    prepare_start_apart(apart, config(), quiet)
    for name in ("model.safetensors", "tokenizer.json", "warm_start.json"):
        assert (apart.start / name).read_bytes() == (here.start / name).read_bytes(), name
    prepare_start_apart(apart, _unfindable(), quiet)  # it is made once


@pytest.mark.slow
def test_its_errors_are_raised_here(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not_there"):
        prepare_start_apart(directory(tmp_path / "run"), _unfindable(), Reporter(quiet=True))


def _unfindable() -> Config:
    tree = config().model_dump()
    tree["environment"]["name"] = "not_there:Suite"
    return Config.model_validate(tree)
