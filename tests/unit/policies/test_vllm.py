"""Where vLLM is not installed. What it does where it is: tests/vllm_engine."""

from pathlib import Path

import pytest
from rich.console import Console

from hgpo.assemble import train
from hgpo.config import ConfigError, load_config
from hgpo.policies.backends import BACKENDS
from hgpo.utils.progress import Reporter

RECIPE = Path(__file__).parents[2] / "corridor.toml"


@pytest.mark.skipif(BACKENDS.get("vllm").missing() is None, reason="vLLM is installed")
def test_a_training_is_refused_with_what_to_install_before_anything_is_written(tmp_path):
    config = load_config(RECIPE, [f"run.directory={str(tmp_path)!r}", "policy.backend=vllm"])
    with pytest.raises(ConfigError, match=r'\'vllm\': vLLM is not installed: pip install "hgpo\[vllm\]"'):
        train(config, Reporter(Console(quiet=True)))
    assert not list(tmp_path.iterdir())
