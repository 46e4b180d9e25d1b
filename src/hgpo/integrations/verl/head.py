"""The head of verl's policy and reference on the positions that predict response tokens.

    tokens -> [decoder] -> hidden states T -> those that predict responses N -> [head, log-softmax, entropy] -> N values
                                              -> T values, zero at all other positions

verl 0.9.1 computes logits, log-probs and entropies of all T tokens and then uses only those of the N response tokens.
Here the head receives only the N hidden states that it needs, with and without fused kernels. The values are then
written to their positions among T, where verl reads them. Positions count real tokens, also in a padded micro-batch.

With Ulysses sequence parallelism, and for rows without a response, verl's own computation is used.

Every process of a run loads this module. Needs verl. Shape suffixes: B rows, T packed tokens, N response tokens, V
vocabulary, H hidden size.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from hgpo.integrations.verl.verl_api import assign_non_tensor_data, get_non_tensor_data, replace

_POSITIONS = "response_positions"


def prepare_model_inputs(engine: Any, micro_batch: TensorDict) -> tuple[dict[str, Any], dict[str, Any]]:
    """verl's method, for a head that receives N hidden states instead of T."""
    inputs, facts = _prepare_model_inputs(engine, micro_batch)
    if engine.use_ulysses_sp or "responses" not in micro_batch:
        return inputs, facts
    offset_B, start_B = (micro_batch[name].offsets() for name in ("input_ids", "responses"))
    length_B = start_B.diff()
    shift_B = offset_B[1:] - start_B[1:] - 1  # the token before predicts a token
    position_N = torch.arange(int(start_B[-1]), device=shift_B.device) + shift_B.repeat_interleave(length_B)
    if get_non_tensor_data(data=micro_batch, key="use_remove_padding", default=True):
        place_N, temperature_N = position_N, facts["temperature_rmpad"][position_N]
    else:
        rows, width = inputs["input_ids"].shape
        padding_B = torch.arange(rows, device=shift_B.device) * width - offset_B[:-1]
        place_N = position_N + padding_B.repeat_interleave(length_B)
        temperature_N = facts["temperature"].repeat_interleave(length_B)
    label_N = facts["input_ids_rmpad_rolled"][position_N]
    facts |= {"input_ids_rmpad_rolled": label_N, "temperature_rmpad": temperature_N, "pad_size": 0}
    if get_non_tensor_data(data=micro_batch, key="use_fused_kernels", default=False):
        inputs["shift_labels"] = label_N.unsqueeze(0)
    _cut_next_output(engine.module, place_N)
    return inputs, {**facts, _POSITIONS: position_N}


def _cut_next_output(module: Any, place_N: torch.Tensor) -> None:
    """Make the decoder's next call return only the hidden states at these places of its flattened output: [1, N, H]."""

    def cut(_: Any, arguments: Any, output: Any) -> None:
        hook.remove()
        output.last_hidden_state = output.last_hidden_state.flatten(0, 1)[place_N].unsqueeze(0)

    model = module.get_base_model() if hasattr(module, "get_base_model") else module
    hook = model.base_model.register_forward_hook(cut)


def prepare_model_outputs(
    engine: Any, output: Any, output_args: dict[str, Any], micro_batch: TensorDict, logits_processor_func: Any
) -> dict[str, torch.Tensor]:
    """verl's method on the responses as a packed micro-batch; then zeros are added for all other tokens."""
    position_N = output_args.get(_POSITIONS)
    if position_N is None:
        found: dict[str, torch.Tensor] = _prepare_model_outputs(
            engine, output, output_args, micro_batch, logits_processor_func
        )
        return found
    responses = micro_batch.copy()
    responses["input_ids"] = responses["responses"]  # verl reads their lengths
    assign_non_tensor_data(responses, "use_remove_padding", True)
    found = _prepare_model_outputs(engine, output, output_args, responses, logits_processor_func)
    offset_B = micro_batch["input_ids"].offsets()
    return {name: _at_positions(values, position_N, offset_B) for name, values in found.items()}


def _at_positions(response: torch.Tensor, position_N: torch.Tensor, offset_B: torch.Tensor) -> torch.Tensor:
    """Nested values of the responses as nested values of the whole rows."""
    value_N = response.values()
    value_T = value_N.new_zeros(int(offset_B[-1])).index_put((position_N,), value_N)
    return torch.nested.nested_tensor_from_jagged(value_T, offset_B)


_prepare_model_inputs = replace("FSDPEngineWithLMHead.prepare_model_inputs", prepare_model_inputs)
_prepare_model_outputs = replace("FSDPEngineWithLMHead.prepare_model_outputs", prepare_model_outputs)
# This class inherits the first method. It keeps verl's: the value of a state is read at its prompt.
replace("FSDPEngineWithValueHead.prepare_model_inputs", _prepare_model_inputs)
