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
