import pytest
import torch

from hgpo.policies.device import resolve_device


def test_a_device_is_taken_by_name():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("meta") == torch.device("meta")


@pytest.mark.parametrize(("cuda", "device"), [(True, "cuda"), (False, "cpu")])
def test_auto_prefers_cuda(monkeypatch, cuda, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert resolve_device("auto").type == device


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "mps"])
def test_a_device_that_is_not_there_is_refused_by_name(name):
    if name == "mps" and torch.backends.mps.is_available():
        pytest.skip("this machine has an MPS device")
    with pytest.raises(ValueError, match=rf'no device "{name}" here .*; take "auto" or "cpu"'):
        resolve_device(name)
