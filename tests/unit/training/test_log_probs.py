import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from hgpo.policies.local import TransformersPolicy
from hgpo.training.batching import Sample
from hgpo.training.log_probs import token_log_probs
from tiny_models import generate, tiny_model, tiny_samples


def test_scores_equal_plain_forward_passes():
    model = tiny_model().model
    samples = tiny_samples(7)
    scores = token_log_probs(model, samples, temperature=0.7)
    for row, sample in enumerate(samples):
        prompt, response = sample.prompt_ids.tolist(), sample.response_ids.tolist()
        logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        log_prob_TV = (logits / 0.7).log_softmax(-1)
        width = len(response)
        expected = log_prob_TV[torch.arange(width), response]
        torch.testing.assert_close(scores.log_prob_BT[row, :width], expected, atol=1e-4, rtol=0)
        entropy = -(log_prob_TV.exp() * log_prob_TV).sum(-1)
        torch.testing.assert_close(scores.entropy_BT[row, :width], entropy, atol=1e-4, rtol=0)
        assert scores.mask_BT[row].tolist() == [True] * width + [False] * (scores.mask_BT.shape[1] - width)


def test_autocast_scores_are_close():
    model = tiny_model().model
    samples = tiny_samples(3)
    exact = token_log_probs(model, samples).log_prob_BT
    rough = token_log_probs(model, samples, precision="bfloat16").log_prob_BT
    assert rough.dtype == torch.float32
    assert not torch.equal(exact, rough)
    torch.testing.assert_close(exact, rough, atol=1.0, rtol=0.1)


def test_impossible_samples_are_refused():
    ids, log_probs = np.array([5], dtype=np.int32), np.zeros(1, dtype=np.float32)
    with pytest.raises(ValueError, match="at least one prompt token"):
        Sample(ids[:0], ids, log_probs, 0.0)
    with pytest.raises(ValueError, match="differ"):
        Sample(ids, ids, log_probs[:0], 0.0)
    with pytest.raises(ValueError, match="finite"):
        Sample(ids, ids, log_probs, float("nan"))
    with pytest.raises(ValueError, match="finite"):
        Sample(ids, ids, log_probs - np.inf, 0.0)


def graded(model, samples, **options):
    """Scores, and the gradient of a loss that takes in log-probs and entropies."""
    model.zero_grad(set_to_none=True)
    scores = token_log_probs(model, samples, temperature=0.7, **options)
    weight_BT = torch.linspace(-1, 1, scores.mask_BT.numel()).reshape(scores.mask_BT.shape)
    value_BT = scores.log_prob_BT * weight_BT
    if scores.entropy_BT is not None and scores.entropy_BT.requires_grad:
        value_BT = value_BT + 0.1 * scores.entropy_BT
    value_BT.masked_fill(~scores.mask_BT, 0).sum().backward()
    return scores, {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("max_logits", [200, *(pytest.param(most, marks=pytest.mark.slow) for most in (1, 1000))])
def test_chunks_change_nothing_but_rounding(max_logits):
    model, samples = tiny_model().model, tiny_samples(9)
    whole, whole_gradient = graded(model, samples)
    chunked, gradient = graded(model, samples, max_logits=max_logits)
    mask_BT = whole.mask_BT
    torch.testing.assert_close(chunked.log_prob_BT[mask_BT], whole.log_prob_BT[mask_BT], atol=1e-5, rtol=0)
    torch.testing.assert_close(chunked.entropy_BT[mask_BT], whole.entropy_BT[mask_BT], atol=1e-5, rtol=0)
    assert gradient.keys() == whole_gradient.keys()
    for name, value in gradient.items():
        torch.testing.assert_close(value, whole_gradient[name], atol=1e-4, rtol=1e-4, msg=name)


HIDDEN = 32


class Largest(TorchDispatchMode):
    """The most numbers with the vocabulary as their last dimension that any operation returned."""

    def __init__(self, vocabulary):
        super().__init__()
        self.vocabulary, self.numbers = vocabulary, 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            is_head = isinstance(leaf, torch.Tensor) and leaf.shape == (HIDDEN, self.vocabulary)
            if isinstance(leaf, torch.Tensor) and leaf.ndim and leaf.shape[-1] == self.vocabulary and not is_head:
                self.numbers = max(self.numbers, leaf.numel())
        return result


def test_no_more_logits_exist_than_allowed_forward_or_backward():
    model, samples = tiny_model().model, tiny_samples(30)
    vocabulary = model.config.vocab_size
    seen = []
    for max_logits in (2**26, 5 * vocabulary):
        with Largest(vocabulary) as largest:
            graded(model, samples, max_logits=max_logits)
        seen.append(largest.numbers)
    assert seen[0] > 20 * vocabulary
    assert seen[1] == 5 * vocabulary


def test_an_entropy_that_is_a_figure_has_no_gradient_and_none_is_none():
    model, samples = tiny_model().model, tiny_samples(4)
    for max_logits in (2**26, 100):
        figure, _ = graded(model, samples, entropy="figure", max_logits=max_logits)
        with_gradient, _ = graded(model, samples, max_logits=max_logits)
        assert not figure.entropy_BT.requires_grad
        assert with_gradient.entropy_BT.requires_grad
        torch.testing.assert_close(figure.entropy_BT, with_gradient.entropy_BT.detach())
        assert graded(model, samples, entropy="none", max_logits=max_logits)[0].entropy_BT is None


@pytest.mark.parametrize(
    ("family", "std", "options"),
    [
        ("gemma2", 2.0, {"final_logit_softcapping": 2.0}),
        ("gemma2", 0.01, {"final_logit_softcapping": 2.0}),  # so small that the cap changes next to nothing
        ("granite", 2.0, {"logits_scaling": 3.0, "pad_token_id": 0}),  # whose padding has an embedding of 0
        pytest.param("qwen3", 2.0, {}, marks=pytest.mark.slow),
        pytest.param("gpt2", 2.0, {}, marks=pytest.mark.slow),
    ],
)
def test_models_that_make_more_of_their_logits_keep_them_whole(family, std, options, caplog):
    model = one_layer(
        family,
        **({} if family == "gpt2" else {"num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 32}),
        **options,
    )
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=std)
    samples = tiny_samples(5)
    whole, chunked = (token_log_probs(model, samples, max_logits=limit) for limit in (2**26, 100))
    mask_BT = whole.mask_BT
    torch.testing.assert_close(chunked.log_prob_BT[mask_BT], whole.log_prob_BT[mask_BT], atol=1e-4, rtol=0)
    assert ("scales or caps the logits" in caplog.text) == bool(options)


def one_layer(family, **options):
    """A model of another family over the tiny model's vocabulary."""
    config = AutoConfig.for_model(
        family,
        vocab_size=len(tiny_model().tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        **options,
    )
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("max_logits", [2**26, pytest.param(100, marks=pytest.mark.slow)])
def test_layers_that_are_recomputed_give_the_same_gradient_and_keep_less(max_logits):
    model, samples = tiny_model().model, tiny_samples(9)
    plain, plain_gradient = graded(model, samples, max_logits=max_logits)
    kept = []

    def keep(tensor):
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        token_log_probs(model, samples, max_logits=max_logits)
        without = len(kept)
        token_log_probs(model, samples, max_logits=max_logits, recompute_layers=True)
    assert len(kept) - without < without
    scores, gradient = graded(model, samples, max_logits=max_logits, recompute_layers=True)
    torch.testing.assert_close(scores.log_prob_BT, plain.log_prob_BT)
    for name, value in gradient.items():
        torch.testing.assert_close(value, plain_gradient[name], msg=name)
    assert not any(module.training for module in model.modules())


def test_layers_with_a_dropout_of_their_own_are_recomputed_without_it():
    model, samples = one_layer("opt", ffn_dim=32, word_embed_proj_dim=16, dropout=0.5), tiny_samples(5)
    plain, plain_gradient = graded(model, samples)
    scores, gradient = graded(model, samples, recompute_layers=True)
    torch.testing.assert_close(scores.log_prob_BT, plain.log_prob_BT)
    torch.testing.assert_close(gradient, plain_gradient)


def test_sampling_keeps_its_cache_after_layers_were_recomputed():
    language_model = tiny_model()
    graded(language_model.model, tiny_samples(3), recompute_layers=True)
    fresh, used = (generate(TransformersPolicy(one), ["go to"]) for one in (tiny_model(), language_model))
    assert fresh[0].token_ids.tolist() == used[0].token_ids.tolist()


def test_samples_that_are_alike_are_read_once_and_count_each(monkeypatch):
    model, samples = tiny_model().model, tiny_samples(6)
    repeated = [samples[row] for row in (0, 1, 0, 2, 1, 0)]
    weight_B1 = torch.arange(1.0, 7.0).unsqueeze(1)

    def gradient(score):
        model.zero_grad(set_to_none=True)
        score().backward()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    def together():
        scores = token_log_probs(model, repeated)
        assert scores.log_prob_BT.shape[0] == 6
        return (weight_B1 * (scores.log_prob_BT + scores.entropy_BT) * scores.mask_BT).sum()

    def one_by_one():
        each = [token_log_probs(model, [one]) for one in repeated]
        return sum(
            factor * (one.log_prob_BT + one.entropy_BT)[one.mask_BT].sum()
            for factor, one in zip(weight_B1[:, 0], each, strict=True)
        )

    rows = []
    forward = model.forward
    with monkeypatch.context() as patched:
        patched.setattr(model, "forward", lambda **inputs: rows.append(len(inputs["input_ids"])) or forward(**inputs))
        found = gradient(together)
    assert rows == [3]
    expected = gradient(one_by_one)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=5e-5, rtol=1e-4)
