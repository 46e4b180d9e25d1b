"""verl's engine on two ranks of FSDP2, whose head runs on response tokens alone, or on all tokens as verl's does.

A module of its own, since the processes of the ranks have to import it.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import distributed
from transformers import Qwen2ForCausalLM
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils
from verl.utils.experimental.torch_functional import FusedLinearForPPO
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.utils.padding import no_padding_2_padding, response_from_nested

import hgpo.integrations.verl.engine  # noqa: F401, repairs verl's engine
from hgpo.integrations.verl import head

PROMPTS = [[9, 14, 3], [11, 6, 20]]  # tokens of the rows of each rank
RESPONSES = [[3, 1, 5], [4, 2, 1]]
VOCABULARY = 50


@dataclass(frozen=True)
class Case:
    """What differs between models and micro-batches."""

    tied: bool
    fused: bool
    packed: bool
    lora: bool = False
    triton: bool = False
    temperature: float = 0.7


CASES = [Case(*flags) for flags in product((True, False), repeat=3)]
CASES += [Case(True, fused, True, lora=True) for fused in (True, False)]
CASES += [Case(True, True, packed, triton=True) for packed in (True, False)]
CASES += [Case(True, False, packed, temperature=1.0) for packed in (True, False)]


def micro_batch(rank: int, case: Case) -> Any:
    generator = torch.Generator().manual_seed(rank)
    columns: dict[str, list[torch.Tensor]] = {name: [] for name in ("prompts", "responses", "input_ids")}
    for lengths in zip(PROMPTS[rank], RESPONSES[rank], strict=True):
        prompt, response = (torch.randint(VOCABULARY, (length,), generator=generator) for length in lengths)
        for name, ids in zip(columns, (prompt, response, torch.cat([prompt, response])), strict=True):
            columns[name].append(ids)
    columns["position_ids"] = [torch.arange(len(ids)) for ids in columns["input_ids"]]
    columns["loss_mask"] = [torch.ones_like(ids) for ids in columns["responses"]]
    nested = {name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()}
    facts = {
        "temperature": case.temperature,
        "use_remove_padding": case.packed,
        "use_fused_kernels": case.fused,
        "calculate_entropy": True,
        "use_dynamic_bsz": True,
        "max_token_len_per_gpu": 30,  # two micro-batches
        "return_model_output": True,
    }
    return tensordict_utils.get_tensordict(nested, facts)


def loss(model_output: Any, data: Any, dp_group: Any) -> Any:
    """Weighs each response token's log-prob and entropy differently; reads them as verl's losses do."""

    weight_BT = data["responses"].to_padded_tensor(0).float() / VOCABULARY - 0.3
    log_prob_BT, entropy_BT = (no_padding_2_padding(model_output[name], data) for name in ("log_probs", "entropy"))
    return (weight_BT * log_prob_BT - 0.2 * weight_BT.square() * entropy_BT).sum(), {}


def engine(folder: Path, case: Case) -> Any:

    model = HFModelConfig(
        path=str(folder / ("tied" if case.tied else "untied")),
        use_remove_padding=case.packed,
        use_fused_kernels=case.fused,
        fused_kernel_options={"impl_backend": "triton" if case.triton else "torch"},
        lora_rank=4 * case.lora,
        target_modules="all-linear",
        override_config={"attn_implementation": "sdpa"},
    )
    precision = {"param_dtype": "float32", "reduce_dtype": "float32", "buffer_dtype": "float32"}
    sharding = FSDPEngineConfig(strategy="fsdp2", mixed_precision=precision, use_torch_compile=False)
    built = FSDPEngineWithLMHead(model, sharding, FSDPOptimizerConfig(lr=1e-3), CheckpointConfig())
    built.initialize()
    return built


def computed(built: Any, rank: int, case: Case) -> dict[str, Any]:
    """What the losses read, the gradients, and how many hidden states reached the head."""
    rows, kernel = [], FusedLinearForPPO.forward

    def fused_head(module: Any, *, hidden_states: torch.Tensor, **given: Any) -> Any:
        rows.append(hidden_states[..., 0].numel())
        return kernel(module, hidden_states=hidden_states, **given)

    def in_place_of_triton(
        hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, heat: float, _: Any
    ) -> Any:
        """The kernel of Triton needs a GPU."""
        return FusedLinearForPPO()(hidden_states=hidden, vocab_weights=weight, input_ids=labels, temperature=heat)

    data, found = micro_batch(rank, case), {}
    [plain_head] = [module for name, module in built.module.named_modules() if name.rpartition(".")[2] == "lm_head"]
    hook = plain_head.register_forward_pre_hook(lambda _, arguments: rows.append(arguments[0][..., 0].numel()))
    kernels = [patch.object(FusedLinearForPPO, "forward", fused_head)]
    kernels += [patch("verl.utils.kernel.linear_cross_entropy.linear_cross_entropy", in_place_of_triton)]
    with kernels[0], kernels[1], built.train_mode():
        for forward_only in (True, False):
            outputs = built.forward_backward_batch(data, loss, forward_only=forward_only)
            for name in ("log_probs", "entropy"):
                values = response_from_nested(outputs["model_output"][name], data["responses"]).values()
                found[f"{name}, forward only: {forward_only}"] = values
        gradients = {name: one.grad for name, one in built.module.named_parameters() if one.grad is not None}
        found |= {f"gradient of {name}": gradient.full_tensor() for name, gradient in gradients.items()}
        built.module.zero_grad()
    hook.remove()
    return {"values": found, "rows": sum(rows), "loss": sum(outputs["loss"])}


def run_rank(rank: int, ranks: int, folder: Path) -> None:

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{folder / 'meeting'}")

    plain, results = Qwen2ForCausalLM.forward, {}
    verls = {"prepare_model_inputs": head._prepare_model_inputs, "prepare_model_outputs": head._prepare_model_outputs}
    for case in CASES:
        torch.manual_seed(1)  # of adapters
        built = engine(folder, case)
        ours = computed(built, rank, case)
        with patch.multiple(FSDPEngineWithLMHead, **verls):
            results[case] = (ours, computed(built, rank, case))
        Qwen2ForCausalLM.forward = plain  # fused kernels replace it
    torch.save({astuple(case): pair for case, pair in results.items()}, folder / f"{rank}.pt")
    distributed.destroy_process_group()
