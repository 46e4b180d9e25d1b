"""What "auto" comes to."""

from types import SimpleNamespace

import pytest
import torch

from hgpo.policies.weights import autocast, computes_in_bfloat16, cpu_has_bfloat16
from tiny_models import tiny_model

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def config(hidden_size):
    return SimpleNamespace(get_text_config=lambda: SimpleNamespace(hidden_size=hidden_size))


@pytest.mark.parametrize(
    ("device", "hidden_size", "native", "expected"),
    [
        (CUDA, 64, False, True),
        (CPU, 576, True, True),
        (CPU, 576, False, False),
        (CPU, 64, True, False),
        (torch.device("meta"), 576, True, False),
    ],
)
def test_auto_is_bfloat16_where_it_gains(monkeypatch, device, hidden_size, native, expected):
    monkeypatch.setattr("hgpo.policies.weights.cpu_has_bfloat16", lambda: native)
    assert computes_in_bfloat16("auto", device, config(hidden_size)) is expected
    assert computes_in_bfloat16("bfloat16", device, config(hidden_size))
    assert not computes_in_bfloat16("float32", device, config(hidden_size))


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [({"avx512_bf16": True}, True), ({"amx_bf16": True}, True), ({"avx512_f": True}, False), (None, False)],
)
def test_the_processor_is_asked_if_pytorch_can_tell(monkeypatch, capabilities, expected):
    if capabilities is None:
        monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    else:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert cpu_has_bfloat16() is expected


def test_a_model_computes_in_what_was_asked_for():
    model = tiny_model().model
    for precision, dtype in (("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        with autocast(model, precision):
            assert model(input_ids=torch.tensor([[3, 4]])).logits.dtype == dtype
