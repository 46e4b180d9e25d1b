"""Tiny language models with a word-level vocabulary, small enough to train from scratch on a laptop.

A tiny model is saved as an ordinary Hugging Face folder (Qwen2 architecture, `tokenizer.json`, chat template), which
`AutoTokenizer` reads (see `_TRUST_STORED_CLASS`).

The tokenizer lower-cases, turns every run of white space or control characters into one space, and cuts text into
words, tags (`<action>`) and single punctuation marks. A token remembers whether a space came before it ("▁apple" or
"apple"), so decoding restores the normalised text exactly: `click[buy now]` stays `click[buy now]`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import sqrt

import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from hgpo.messages import encodable

PAD = "<|pad|>"
UNKNOWN = "<|unknown|>"
END = "<|end|>"
USER = "<|user|>"
ASSISTANT = "<|assistant|>"
SPECIAL_TOKENS = (PAD, UNKNOWN, END, USER, ASSISTANT)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

# transformers 5 reads every tokenizer in a Qwen2 folder as Qwen's byte-level BPE, whichever class the folder names,
# unless the folder also maps AutoTokenizer; an empty map names no code to run.
_TRUST_STORED_CLASS = {"AutoTokenizer": [None, None]}
_SPACE = "▁"
_WORD = rf"{_SPACE}?(?:</?\w+>|[^\W_]+|[^\w\s]|_)"  # a tag, a word or number, or one punctuation mark


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Word-level tokenizer with every word of `texts`.

    The vocabulary depends on the multiset of words, not on the order of `texts`. Other words become the unknown token.

    Example: after `build_tokenizer(["take apple 1 from fridge 1"])`, "Take  apple 1" encodes to three ids and decodes
    to "take apple 1".
    """
    normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Lowercase(),
            # The marker, too: decoding would turn it into a space.
            normalizers.Replace(tokenizers.Regex(rf"[\s\p{{C}}{_SPACE}]+"), " "),
            normalizers.Strip(),
        ]
    )
    splitter = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme="always", split=False),
            pre_tokenizers.Split(tokenizers.Regex(_WORD), behavior="removed", invert=True),
        ]
    )
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(encodable(text))))
    words = sorted(counts, key=lambda word: (-counts[word], word))
    vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *words])}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.normalizer = normalizer
    backend.pre_tokenizer = splitter
    backend.decoder = decoders.Metaspace(replacement=_SPACE, prepend_scheme="always")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        padding_side="left",
        auto_map=_TRUST_STORED_CLASS,
    )


def build_model(
    vocabulary_size: int,
    *,
    hidden_size: int = 64,
    layers: int = 2,
    heads: int = 4,
    max_tokens: int = 1024,
    initializer_range: float | None = None,
    seed: int = 0,
) -> Qwen2ForCausalLM:
    """Untrained Qwen2 model; the same `seed` gives the same weights and leaves torch's global generator untouched.

    Parameters ≈ vocabulary_size · hidden_size + layers · 13 · hidden_size² (embeddings are tied, the inner layer is
    3 · hidden_size wide): a vocabulary of 500 gives about 140,000 with the defaults. `initializer_range` is the
    standard deviation of the initial weights; None: see `_initial_deviation`.

    Raises:
        ValueError: `hidden_size` does not split into `heads` heads of even size (rotary positions pair dimensions).
    """
    if hidden_size % (2 * heads):
        raise ValueError(f"hidden_size {hidden_size} is not a multiple of 2 * heads = {2 * heads}")
    config = Qwen2Config(
        vocab_size=vocabulary_size,
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=max_tokens,
        initializer_range=_initial_deviation(hidden_size) if initializer_range is None else initializer_range,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=SPECIAL_TOKENS.index(END),
        pad_token_id=SPECIAL_TOKENS.index(PAD),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
    return model.eval()


def _initial_deviation(hidden_size: int) -> float:
    """Standard deviation of a new model's weights: 0.08 up to a width of 128, then falling with the root of the width.

    At width 64 the usual 0.02 makes attention so flat that the same loss takes four times the steps. Above 128 the
    deviation falls so that sums over a layer's inputs keep their size; it is 0.02 at a width of 2,048.
    """
    return 0.08 * min(1.0, sqrt(128 / hidden_size))
