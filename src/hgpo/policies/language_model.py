"""A causal language model with its tokenizer, loaded on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from hgpo.policies.base import TokenIds
from hgpo.policies.chat import Chat, PromptEncoder, end_tokens
from hgpo.policies.loading import load_model, load_model_config, load_tokenizer, resolve_device
from hgpo.policies.weights import Precision, computes_in_bfloat16

COMPUTING = "computing"


@dataclass(frozen=True, slots=True)
class GenerationLimits:
    """Longest prompt and response of a language model, its arithmetic and its chat format.

    Attributes:
        prompt_tokens: most tokens of a prompt, chat template included.
        response_tokens: most tokens of a response, end token included.
        precision: arithmetic of the forward pass, the same for sampling and for training.
        chat: system prompt and template options.
    """

    prompt_tokens: int = 4096
    response_tokens: int = 512
    precision: Precision = "auto"
    chat: Chat = field(default_factory=Chat)


class LanguageModel:
    """A Hugging Face model with its tokenizer and limits.

    The weights are loaded on the first access to `model`.

    Attributes:
        tokenizer: a tokenizer of transformers, with a chat template.
        limits: see `GenerationLimits`.
        source: folder or hub name of the weights; empty for a model that was built in memory.
        encoder: prompts and responses as tokens.
    """

    def __init__(self, tokenizer: Any, load: Callable[[], Any], limits: GenerationLimits, source: str = "") -> None:
        """Set up the encoder; `load` returns the torch module.

        Raises:
            ValueError: the tokenizer has no chat template.
        """
        self.tokenizer, self.limits, self.source = tokenizer, limits, source
        self.encoder = PromptEncoder(tokenizer, limits.prompt_tokens, limits.chat)
        self._load = load

    @classmethod
    def of(cls, model: Any, tokenizer: Any, limits: GenerationLimits | None = None) -> Self:
        """Wrap a model in memory."""
        return cls(tokenizer, lambda: model, limits or GenerationLimits())

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        limits: GenerationLimits | None = None,
        *,
        revision: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
    ) -> Self:
        """Load from a folder, a .gguf file or the hub; see `hgpo.policies.loading.load_model` for the arguments.

        `dtype` "computing" is the data type of the forward pass, for weights that stay frozen. Use "float32" to train:
        with small learning rates, bfloat16 weights round updates away.
        """
        limits = limits or GenerationLimits()
        where = resolve_device(device)  # rejects a missing device before the weights are loaded

        def load() -> Any:
            stored = dtype
            if dtype == COMPUTING:
                low = computes_in_bfloat16(limits.precision, where, load_model_config(source, revision=revision))
                stored = "bfloat16" if low else "float32"
            return load_model(source, revision=revision, device=device, dtype=stored)

        return cls(load_tokenizer(source, revision=revision), load, limits, str(source))

    def changed(self, change: Callable[[Any], Any]) -> LanguageModel:
        """A language model whose module is `change(self.model)`, computed on first use."""
        return LanguageModel(self.tokenizer, lambda: change(self.model), self.limits, self.source)

    @cached_property
    def model(self) -> Any:
        """The torch module, in evaluation mode, with all end tokens in its generation config.

        Raises:
            ValueError: the tokenizer does not fit the model.
        """
        model = self._load().eval()
        _check_vocabulary(model, self.tokenizer, self.encoder)
        ends = end_tokens(model, self.tokenizer)
        model.generation_config.eos_token_id = ends if len(ends) > 1 else ends[0]
        model.generation_config = _savable(model.generation_config)
        return model

    @cached_property
    def end_tokens(self) -> list[int]:
        """All tokens that end a turn, ascending."""
        return end_tokens(self.model, self.tokenizer)

    def encode_responses(self, responses: Sequence[str]) -> list[TokenIds]:
        """Token ids of each response, end token included."""
        preferred = self.tokenizer.eos_token_id
        return self.encoder.encode_responses(responses, self.end_tokens[0] if preferred is None else preferred)


def check_positions(language_model: LanguageModel) -> None:
    """Reject prompt and response lengths that exceed the model's positions, with a `ValueError`.

    Beyond the original positions of a "longrope" model, transformers scales the positions of all sequences of a batch
    anew: log-probs would depend on the batch, and those of a sampled response on earlier tokens' keys in another scale.
    """
    prompt, response = language_model.limits.prompt_tokens, language_model.limits.response_tokens
    config = language_model.model.config.get_text_config()
    positions, rope = getattr(config, "max_position_embeddings", None), getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        positions = rope["original_max_position_embeddings"]
    if positions is not None and prompt + response > positions:
        raise ValueError(
            f"policy.max_prompt_tokens {prompt} + policy.max_response_tokens {response} exceed the model's {positions} "
            "positions; lower one of them"
        )


def _savable(config: Any) -> Any:
    """A generation config that transformers saves. Many that it loads have a temperature without `do_sample`."""
    for sampled in (config.do_sample, True):
        config.do_sample = sampled
        with suppress(ValueError):
            config.validate(strict=True)
            return config
    return type(config)(eos_token_id=config.eos_token_id)


def _check_vocabulary(model: Any, tokenizer: Any, encoder: PromptEncoder) -> None:
    """Reject a tokenizer with tokens that the model does not embed; on CUDA they would end the process.

    Only text tokens and those of the chat template count: some tokenizers also have tokens of images. Many models embed
    more tokens than the tokenizer has, as padding.
    """
    known = model.config.get_text_config().vocab_size
    [empty_prompt] = encoder.encode_prompts([""])
    needed = max(tokenizer.vocab_size, int(empty_prompt.max(initial=-1)) + 1)
    if needed > known:
        raise ValueError(
            f"the tokenizer has {needed:,} tokens and the model embeds {known:,}: tokenizer and model do not match"
        )
