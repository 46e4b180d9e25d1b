from types import SimpleNamespace

import pytest
import torch

from hgpo.policies.loading import resolve_device


def test_a_device_is_taken_by_name():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("meta") == torch.device("meta")


@pytest.mark.parametrize(("cuda", "device"), [(True, "cuda"), (False, "cpu")])
def test_auto_prefers_cuda(monkeypatch, cuda, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert resolve_device("auto").type == device


def test_a_device_without_float64_is_refused(monkeypatch):
    """Played by a tensor that says so, for no machine that tests this has one."""
    monkeypatch.setattr(torch, "empty", lambda *_, device: SimpleNamespace(device=torch.device(device)))
    with pytest.raises(ValueError, match='device "mps" has no float64, which sampling needs; use "cpu"'):
        resolve_device("mps")


@pytest.mark.parametrize("name", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_by_name(name):
    with pytest.raises(ValueError, match=rf'no device "{name}" here .*; use "auto" or "cpu"'):
        resolve_device(name)
