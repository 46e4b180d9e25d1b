from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from hgpo.config import Config, ConfigError, load_config, read_config
from hgpo.runs.progress import Reporter
from hgpo.training import memory_check, memory_plan
from hgpo.training.memory_check import changed, check_memory, fitting_changes
from hgpo.training.trainer import train

WIDE = (
    "warm_start.enabled=true",
    "policy.tiny.hidden_size=512",
    "policy.tiny.layers=8",
    "policy.max_prompt_tokens=1000",
    "policy.max_response_tokens=100",
    "training.precision=float32",
)
GIB = 2**30


def config(*overrides: str) -> Config:
    return load_config(None, [*WIDE, *overrides])


def checked(settings: Config) -> str:
    """What was said."""
    screen = io.StringIO()
    check_memory(settings, Reporter(Console(file=screen, width=200)))
    return screen.getvalue()


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """GiB that are there for a process that has nothing yet; None: nobody knows."""
    gib: list[float | None] = [64.0]

    def available(device: object) -> int | None:
        return None if gib[0] is None else int(gib[0] * GIB)

    monkeypatch.setattr(memory_check, "available_memory", available)
    for module in (memory_check, memory_plan):
        monkeypatch.setattr(module, "resident_memory", lambda: 0)
    return gib


def test_one_line_says_what_is_needed_and_what_is_there(there: list[float | None]) -> None:
    said = checked(config())
    assert re.fullmatch(r"Memory: about \d+\.\d GiB in \w[\w ]+ \((\w+ \d+\.\d(, )?)+\), 64\.0 GiB are there\n", said)
    there[0] = None
    assert checked(config()).endswith(")\n")


def test_a_model_that_needs_little_is_not_spoken_of(there: list[float | None]) -> None:
    small = load_config(
        None, ["warm_start.enabled=true", "policy.max_prompt_tokens=100", "policy.max_response_tokens=9"]
    )
    assert checked(small) == ""
    there[0] = 0.1
    with pytest.raises(ConfigError):
        checked(small)


@pytest.mark.parametrize("gib", [2.0, 2.5, 3.0, 4.5])
def test_a_refusal_names_settings_that_fit(there: list[float | None], gib: float) -> None:
    there[0] = gib
    with pytest.raises(ConfigError, match=rf"and {gib:.1f} GiB are there: .* would take \d\.\d GiB$") as refusal:
        checked(config())
    named = re.findall(r"[\w.]+=\w+", str(refusal.value))
    assert named
    checked(config(*named))
    for left_out in named:  # each of them is needed
        with pytest.raises(ConfigError):
            checked(config(*(change for change in named if change != left_out)))


def test_where_nothing_fits_the_least_is_named(there: list[float | None]) -> None:
    there[0] = 0.3
    with pytest.raises(ConfigError, match=r"No settings were found that fit, \d\.\d GiB is the least"):
        checked(config())


def test_mild_changes_are_preferred_and_taken_back_where_they_do_not_help() -> None:
    def fits(settings: Config) -> bool:
        return settings.training.gradient_checkpointing and settings.training.max_logits <= 2**25

    assert fitting_changes(config(), fits) == {"training.gradient_checkpointing": True, "training.max_logits": 2**25}
    assert fitting_changes(config(), lambda settings: settings.training.kl_coefficient == 0) == {
        "training.kl_coefficient": 0
    }
    assert fitting_changes(config(), lambda settings: settings.policy.lora.rank > 0) == {"policy.lora.rank": 16}
    assert fitting_changes(config(), lambda settings: False) is None


def test_changes_are_those_of_the_command_line() -> None:
    changes = {"policy.options.max_batch_tokens": 7, "training.kl_coefficient": 0, "training.max_logits": 9}
    written = [f"{name}={value}" for name, value in changes.items()]
    assert changed(config(), changes) == read_config(None, [*WIDE, *written])


def test_a_refused_run_leaves_nothing_behind(tmp_path: Path, there: list[float | None]) -> None:
    there[0] = 0.3
    recipe = Path(__file__).parents[2] / "corridor.toml"
    settings = load_config(recipe, [f"run.directory={str(tmp_path / 'runs')!r}", *WIDE[1:]])
    with pytest.raises(ConfigError, match="GiB are there"):
        train(settings, Reporter(Console(quiet=True)))
    assert not (tmp_path / "runs").exists()
