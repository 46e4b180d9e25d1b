"""How much memory training will take: arithmetic on a model's shape and a run's limits.

Three phases follow each other, and the largest counts: the update, sampling, and a warm start. What a layer keeps for
the backward pass was read from autograd's saved tensors (Llama and Qwen2 under SDPA attention), what the logits take
from the allocations of `hgpo.training.vocabulary`. Against what whole updates had resident on a CPU (three models, both
precisions, with and without recomputed layers) the estimate was 0.93 to 1.32 times as much
(tests/unit/training/test_memory_estimate.py); on CUDA it has not been measured. It is made for the longest prompts and
responses that the limits allow, in rows of unequal length. Mixtures of experts are not in it.

Shape letters: N tokens of a micro-batch, W its width, H hidden size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from hgpo.training.prefix_trees import row_width

_FLOAT, _HALF = 4, 2  # bytes
_MOMENTS = 2  # of AdamW, float32


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a causal language model that decide what it takes.

    Attributes:
        hidden_size: H.
        layers: transformer layers.
        heads: attention heads.
        key_value_heads: heads that keys and values have.
        head_size: of one head.
        intermediate_size: width inside of a layer's MLP.
        vocabulary: V.
        head_norms: queries and keys are normalised (Qwen3).

    Example: SmolLM2-135M is `ModelShape(576, 30, 9, 3, 64, 1536, 49_152)`.
    """

    hidden_size: int
    layers: int
    heads: int
    key_value_heads: int
    head_size: int
    intermediate_size: int
    vocabulary: int
    head_norms: bool = False

    def adapter_parameters(self, rank: int) -> int:
        """Trainable parameters of LoRA on every linear map of the layers."""
        queries, keys = self.heads * self.head_size, self.key_value_heads * self.head_size
        ends = 2 * (self.hidden_size + queries) + 2 * (self.hidden_size + keys)
        return self.layers * rank * (ends + 3 * (self.hidden_size + self.intermediate_size))

    @property
    def layer_weights(self) -> int:
        """Parameters of one layer's linear maps."""
        queries, keys = self.heads * self.head_size, self.key_value_heads * self.head_size
        return self.hidden_size * (2 * queries + 2 * keys + 3 * self.intermediate_size)

    @property
    def embedding_weights(self) -> int:
        """Parameters of the embeddings, or of the head."""
        return self.vocabulary * self.hidden_size


@dataclass(frozen=True, slots=True)
class Weights:
    """What is held of a model, and of its reference.

    Attributes:
        trainable: parameters that are trained; float32, as are their gradients.
        frozen: parameters that are not.
        frozen_bytes: of each of these.
        reference_bytes: of the frozen start model, altogether; 0 where there is none.
        sampler_bytes: of the sampler's own copy; 0 where it has none.

    Example: all of SmolLM2-135M trained in bfloat16, beside its reference:
    `Weights(trainable=134_515_008, reference_bytes=269_030_016)`.
    """

    trainable: int
    frozen: int = 0
    frozen_bytes: int = _FLOAT
    reference_bytes: int = 0
    sampler_bytes: int = 0

    @property
    def held(self) -> int:
        """Bytes of the trained model."""
        return _FLOAT * self.trainable + self.frozen_bytes * self.frozen


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the batches of a run.

    Attributes:
        prompt_tokens: the longest prompt.
        response_tokens: the longest response.
        micro_batch_tokens: of one forward and backward pass, padding included.
        share_prefixes: samples that begin alike share rows (`hgpo.training.prefix_trees`).
        max_logits: most logits held at a time.
        recompute_layers: layers keep their inputs alone.
        low_precision: forward passes compute in bfloat16.
        entropy_gradient: the entropy is part of the loss.
        sampler_rows: most responses sampled together; 0: something else samples.
        sampler_tokens: most tokens of these, padded.
        warm_start_tokens: of one micro-batch of the warm start; 0: there is none.
        accelerator: AdamW steps through all parameters at once, as it does on CUDA.

    Example: `Limits(4096, 512, micro_batch_tokens=8192, max_logits=2**26, sampler_rows=64, sampler_tokens=2**18)`.
    """

    prompt_tokens: int
    response_tokens: int
    micro_batch_tokens: int
    max_logits: int
    share_prefixes: bool = False
    recompute_layers: bool = False
    low_precision: bool = False
    entropy_gradient: bool = True
    sampler_rows: int = 0
    sampler_tokens: int = 0
    warm_start_tokens: int = 0
    accelerator: bool = False

    @property
    def longest(self) -> int:
        """W of the longest sample: the last token of a response is no input."""
        return self.prompt_tokens + self.response_tokens - 1

    def row_width(self, tokens: int) -> int:
        """Tokens of a row of a micro-batch; two rows are the fewest that are padded, and have a mask."""
        return row_width(self.longest, tokens) if self.share_prefixes else min(self.longest, tokens // 2)


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes by what takes them, in the phases of a run.

    Attributes:
        phases: name -> parts -> bytes; what a phase does not hold is left out.

    Example: `MemoryEstimate({"update": {"weights": 9, "gradients": 9}, "sampling": {"weights": 9}}).total == 18`.
    """

    phases: dict[str, dict[str, int]]

    @property
    def largest(self) -> str:
        """The phase that takes most."""
        return max(self.phases, key=lambda name: sum(self.phases[name].values()))

    @property
    def total(self) -> int:
        """Bytes of that phase."""
        return sum(self.phases[self.largest].values())


def estimate_memory(shape: ModelShape, weights: Weights, limits: Limits, process: int = 0) -> MemoryEstimate:
    """What training takes at most.

    Args:
        shape: of the model.
        weights: what is held of it.
        limits: of the batches.
        process: bytes that are taken before the model is there.
    """
    moments, gradients = _MOMENTS * _FLOAT * weights.trainable, _FLOAT * weights.trainable
    always = {"process": process, "weights": weights.held, "sampler's weights": weights.sampler_bytes}
    trained = {**always, "reference": weights.reference_bytes, "optimiser": moments}
    sampling = _sampler_bytes(shape, weights, limits)
    phases = {
        "update": {**trained, "gradients": gradients, **_pass_or_step(shape, weights, limits)},
        "sampling": {**trained, "sampler": sampling},
    }
    if limits.warm_start_tokens:
        # Two snapshots are kept at most, and a third is made before one of them goes.
        snapshot = gradients + moments  # as large as what is trained, and its moments
        busy = (
            {"snapshots": 3 * snapshot},
            {"snapshots": 2 * snapshot, "sampler": sampling},
            {"snapshots": 2 * snapshot, **_pass_bytes(shape, weights, limits, limits.warm_start_tokens)},
        )
        largest = max(busy, key=lambda parts: sum(parts.values()))
        phases["warm start"] = {**always, "optimiser": moments, "gradients": gradients, **largest}
    return MemoryEstimate(
        {name: {part: size for part, size in parts.items() if size} for name, parts in phases.items()}
    )


def _pass_or_step(shape: ModelShape, weights: Weights, limits: Limits) -> dict[str, int]:
    """A forward and backward pass, or AdamW's own work where that takes more: the passes are done by then."""
    passed = _pass_bytes(shape, weights, limits, limits.micro_batch_tokens)
    largest = min(weights.trainable, shape.embedding_weights)
    step = _FLOAT * (weights.trainable if limits.accelerator else 2 * largest)
    return passed if sum(passed.values()) >= step else {"optimiser's step": step}


def _pass_bytes(shape: ModelShape, weights: Weights, limits: Limits, tokens: int) -> dict[str, int]:
    """Activations and logits of one micro-batch of at most `tokens`, without the gradients that are kept."""
    tokens_N = max(tokens, limits.longest)
    layer = tokens_N * layer_bytes(shape, limits, limits.row_width(tokens))
    copies = _cast_bytes(shape, weights, limits)
    layer_input = tokens_N * _FLOAT * shape.hidden_size
    ends = 3 * layer_input  # the embeddings, and the last norm
    if limits.recompute_layers:
        kept, working = shape.layers * layer_input, layer + layer_input + copies
    else:
        kept = shape.layers * (layer + copies)
        working = tokens_N * (2 * _number(limits) * shape.intermediate_size + 2 * _FLOAT * shape.hidden_size)
    logits = _logit_bytes(shape, weights, limits, tokens_N)
    # A layer works while no logits are held; the gradient of the embeddings is gathered through the whole pass.
    embeddings = 0 if weights.frozen else _FLOAT * shape.embedding_weights
    return {"activations": kept + ends + embeddings + max(0, working - logits), "logits": logits}


def layer_bytes(shape: ModelShape, limits: Limits, width_W: int) -> int:
    """What a layer keeps of one token for its backward pass, in rows of `width_W` tokens."""
    number = _number(limits)
    queries, keys = shape.heads * shape.head_size, shape.key_value_heads * shape.head_size
    # Two norms keep what comes in, normalised and (without bfloat16) what goes out, in float32; under autocast each of
    # the five maps that read it keeps a copy of its own.
    norms = 4 * _FLOAT * shape.hidden_size + (5 * _HALF if limits.low_precision else 2 * _FLOAT) * shape.hidden_size
    # Queries, keys and values (these two repeated for all heads, since there is a mask) and what comes out.
    attention = 4 * number * queries + _FLOAT * shape.heads
    if shape.head_norms:
        attention += (_FLOAT + number) * (queries + keys) + _FLOAT * (shape.heads + shape.key_value_heads)
    mask = number * width_W
    mlp = 4 * number * shape.intermediate_size
    return norms + attention + mask + mlp


def _cast_bytes(shape: ModelShape, weights: Weights, limits: Limits) -> int:
    """The bfloat16 copies that autocast makes of one layer's float32 weights."""
    copied = limits.low_precision and (not weights.frozen or weights.frozen_bytes > _HALF)
    return _HALF * shape.layer_weights if copied else 0


def _logit_bytes(shape: ModelShape, weights: Weights, limits: Limits, tokens_N: int) -> int:
    """The logits that are scored at a time, with their temporaries, and the head's copy."""
    if limits.entropy_gradient:
        each = 5 * _FLOAT  # log-probs and probabilities kept, three gradients in the backward pass
    else:
        each = 3 * _FLOAT + _number(limits)  # as they are, as log-probs, and two temporaries
    share = 2 if limits.share_prefixes else 1  # what prompts share leaves room for responses: for as many again, say
    responses = max(limits.response_tokens, share * tokens_N * limits.response_tokens // limits.longest)
    held = min(responses * shape.vocabulary, max(limits.max_logits, shape.vocabulary))
    copied = _cast_bytes(shape, weights, limits) > 0
    return each * held + (_HALF * shape.embedding_weights if copied else 0)


def _sampler_bytes(shape: ModelShape, weights: Weights, limits: Limits) -> int:
    """Key-value cache of the largest batch, with what reading the prompts or drawing tokens takes beside it."""
    if not limits.sampler_rows:
        return 0
    number, length = _number(limits), limits.prompt_tokens + limits.response_tokens
    rows = max(1, min(limits.sampler_rows, limits.sampler_tokens // length))
    cached_token = 2 * number * shape.layers * shape.key_value_heads * shape.head_size
    prompt_token = 3 * number * shape.intermediate_size + 4 * _FLOAT * shape.hidden_size
    prompt_token += (number + 1) * limits.prompt_tokens  # the mask, once true or false and once as numbers
    reading = rows * limits.prompt_tokens * (cached_token + prompt_token)
    drawing = rows * (length * cached_token * (shape.layers + 1) // shape.layers + 6 * _FLOAT * shape.vocabulary)
    copies = shape.layers * _cast_bytes(shape, weights, limits)
    return max(reading, drawing) + copies + (_HALF * shape.embedding_weights if copies else 0)


def _number(limits: Limits) -> int:
    """Bytes of a number that a linear map gives."""
    return _HALF if limits.low_precision else _FLOAT
