"""A warm start in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgpo.assemble import prepare_start, training_suite
from hgpo.config import Config, ConfigError, load_config
from hgpo.integrations.verl.launch import prepare_start_apart
from hgpo.runs.folder import RunDirectory, create_run_directory
from hgpo.utils.progress import Reporter

RECIPE = Path(__file__).parents[3] / "corridor.toml"


def config(*overrides: str) -> Config:
    return load_config(RECIPE, ["policy.device=cpu", *overrides])


@pytest.mark.slow
def test_it_is_the_start_that_would_have_been_made_here(tmp_path: Path) -> None:
    settings = config(f"run.directory={tmp_path}")
    here, apart = RunDirectory(tmp_path / "here"), create_run_directory(settings)
    here.path.mkdir()
    suite = training_suite(settings.environment, settings.evaluation, settings.warm_start)
    prepare_start(here, settings, suite, Reporter(quiet=True))
    prepare_start_apart(apart, quiet=True)
    for name in ("model.safetensors", "tokenizer.json", "warm_start.json"):
        assert (apart.start / name).read_bytes() == (here.start / name).read_bytes(), name


@pytest.mark.slow
def test_its_errors_are_raised_here(tmp_path: Path) -> None:
    tree = config(f"run.directory={tmp_path}").model_dump()
    tree["environment"]["name"] = "not_there:Suite"
    with pytest.raises(ConfigError, match="not_there"):
        prepare_start_apart(create_run_directory(Config.model_validate(tree)), quiet=True)
