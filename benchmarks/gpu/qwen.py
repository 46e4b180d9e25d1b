"""Models of Qwen2.5's architecture and sizes, made from scratch: for memory and speed, not for what they say."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from hgpo.policies.pretrained import load_tokenizer

SIZES: dict[str, dict[str, Any]] = {
    "0.5B": {
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "vocab_size": 151_936,
    },
    "1.5B": {
        "hidden_size": 1536,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "intermediate_size": 8960,
        "vocab_size": 151_936,
    },
    "rehearsal": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 192,
        "vocab_size": 4096,
    },
}
"""As the config.json files of Qwen2.5-0.5B and -1.5B have them; both share embeddings and head."""


def make_qwen(folder: Path, size: str, tokenizer_of: Path, device: torch.device) -> Path:
    """A folder with random weights of a size and another model's tokenizer; one that is there is kept.

    Args:
        folder: where it is written.
        size: a key of `SIZES`.
        tokenizer_of: a model's folder. The weights mean nothing, so any tokenizer that is no larger will do.
        device: on which the random numbers are drawn.
    """
    if folder.exists():
        return folder
    tokenizer = load_tokenizer(tokenizer_of)
    config = Qwen2Config(
        **SIZES[size],
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.device(device):
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    tokenizer.init_kwargs["auto_map"] = {"AutoTokenizer": [None, None]}  # else transformers takes it for Qwen's own
    tokenizer.save_pretrained(partial)
    model.save_pretrained(partial)
    return partial.rename(folder)
