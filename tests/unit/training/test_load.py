"""What is checked of a model before a run begins; no weights are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgpo.config import ConfigError, load_config
from hgpo.training.load import check_model
from tiny_models import WORDS, save_tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "model", [" ".join(WORDS)], hidden_size=16, layers=1, heads=2, max_tokens=64)


def check(folder: Path, *settings: str) -> None:
    check_model(load_config(None, [f"policy.model={str(folder)!r}", *settings]).policy)


def test_a_template_that_leaves_out_the_prompt_is_rejected_before_a_run_begins(folder: Path) -> None:
    check(folder)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}<{{ m.role }}>{{ m.text }}{% endfor %}")
    with pytest.raises(ConfigError, match=rf"^{folder}'s chat template leaves out or changes the prompt"):
        check(folder)


def test_a_template_without_the_system_message_is_rejected_before_a_run_begins(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[-1].content }}")
    check(folder)
    with pytest.raises(
        ConfigError, match=rf"^policy.system_prompt: {folder}'s chat template leaves out or changes a system message"
    ):
        check(folder, "policy.system_prompt='Be brief.'")
