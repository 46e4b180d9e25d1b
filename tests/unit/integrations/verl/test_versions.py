from __future__ import annotations

import pytest

from hgpo.config import ConfigError
from hgpo.integrations.verl import versions


def installed(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    monkeypatch.setattr(versions, "installed_version", lambda package: found.get(package))


@pytest.mark.parametrize("version", ["0.9.1", "0.9.9", "0.9.2.post1", "0.9.1+cu121"])
def test_versions_it_was_written_for(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(monkeypatch, verl=version, ray="2.60.0", TransferQueue="0.1.11")
    assert versions.require_verl() == version


@pytest.mark.parametrize("version", ["0.9.0", "0.8.3", "0.10.0", "0.10.0.dev1", "1.0"])
def test_another_version_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(monkeypatch, verl=version, ray="2.60.0", TransferQueue="0.1.11")
    with pytest.raises(ConfigError, match=rf"verl {version} is installed: pip install 'verl>=0\.9\.1,<0\.10'"):
        versions.require_verl()


def test_no_verl(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    with pytest.raises(ConfigError, match=r"not installed: pip install 'hgpo\[verl\]'"):
        versions.require_verl()


def test_verl_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, verl="0.9.1", TransferQueue="0.1.11")
    with pytest.raises(ConfigError, match="needs ray"):
        versions.require_verl()


def test_what_is_installed_is_found() -> None:
    assert versions.installed_version("numpy") is not None
    assert versions.installed_version("no-such-package-anywhere") is None


METADATA = [
    "accelerate",
    'torch==2.11.0; extra == "vllm"',
    'vllm==0.24.0; extra == "vllm"',
    'transformers==5.9.0; extra == "vllm"',
    'sglang==0.5.12; extra == "sglang"',
    'flash-attn==2.8.3; extra == "flash-attn-cu130torch211"',
    'liger-kernel>=0.8.2; extra == "fsdp"',
]
PINS = {"torch": "2.11.0", "vllm": "0.24.0", "transformers": "5.9.0", "flash-attn": "2.8.3"}
ALL = {"torch", "vllm", "flash-attn"}


def test_pins_are_read_from_verls_metadata() -> None:
    assert versions.gpu_pins(METADATA) == PINS


def test_the_installed_verl_has_these_pins() -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")
    assert versions.gpu_pins().items() >= PINS.items()


def test_without_verl_there_are_no_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    assert versions.gpu_pins() == {}


def test_what_verl_was_released_with_needs_no_remedy() -> None:
    found = versions.package_findings({**PINS, "flash-attn": "2.8.3.post1", "torch": "2.11.0+cu130"}, PINS, ALL)
    assert [finding.remedy for finding in found] == [""] * 4


def test_another_version_is_said_and_not_refused() -> None:
    found = {finding.what: finding for finding in versions.package_findings({**PINS, "vllm": "0.33.0"}, PINS, ALL)}
    assert "released with vllm==0.24.0" in found["vllm"].remedy
    assert not any(finding.fatal for finding in found.values())


def test_what_is_missing_is_refused_where_it_is_needed() -> None:
    bare = {**PINS, "vllm": None, "flash-attn": None}
    fatal = [finding.what for finding in versions.package_findings(bare, PINS, ALL) if finding.fatal]
    assert fatal == ["vllm", "flash-attn"]
    found = {finding.what: finding for finding in versions.package_findings(bare, PINS, {"torch"})}
    assert not found["vllm"].fatal
    assert "--no-build-isolation 'flash-attn==2.8.3'" in found["flash-attn"].remedy
    assert "attn_implementation=sdpa" in found["flash-attn"].remedy


def test_a_torch_without_cuda_is_refused() -> None:
    found = versions.package_findings({**PINS, "torch": "2.11.0+cpu"}, PINS, ALL)[0]
    assert found.fatal
    assert "without CUDA" in found.remedy
