import copy
import sys

import numpy as np
import pytest
import torch

from hgpo.config import TrainingSettings
from hgpo.policies.weights import Adapter, add_adapter
from hgpo.runs.checkpoints import CheckpointError
from hgpo.training import checkpoint as module
from hgpo.training.checkpoint import TrainingState, load_checkpoint, open_language_model, save_checkpoint
from hgpo.training.update import Trained, make_optimizer, update_policy
from tiny_models import tiny_model, tiny_samples

SETTINGS = TrainingSettings(learning_rate=1e-3, mini_batch_size=8)


def save(folder, update, *, policy=None, optimizer=None, rollout_rng=None, update_rng=None):
    policy = policy or tiny_model()
    rngs = (rng or np.random.default_rng(0) for rng in (rollout_rng, update_rng))
    optimizer = optimizer or make_optimizer(policy.model, SETTINGS)
    state = TrainingState(policy, optimizer, *rngs, update, tasks_drawn=7, seconds=0.5, evaluations={"before"})
    save_checkpoint(folder, state)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_continuing_from_a_checkpoint_is_bit_identical(tmp_path):
    policy, samples = tiny_model(), tiny_samples(20)
    reference = copy.deepcopy(policy.model)
    model, optimizer, rng = policy.model, make_optimizer(policy.model, SETTINGS), np.random.default_rng(5)
    rollout_rng = np.random.default_rng(7)
    rollout_rng.integers(10, dtype=np.uint32)  # leaves half a word buffered
    straight = []
    for update in range(4):
        if update == 2:
            save(tmp_path, 2, policy=policy, optimizer=optimizer, rollout_rng=rollout_rng, update_rng=rng)
        straight.append(update_policy(Trained(model, optimizer, reference), samples, SETTINGS, rng))
    loaded = load_checkpoint(tmp_path / "2", SETTINGS, device="cpu")
    trained = Trained(loaded.language_model.model, loaded.optimizer, reference)
    resumed = [update_policy(trained, samples, SETTINGS, loaded.update_rng) for _ in range(2)]
    assert (loaded.update, loaded.tasks_drawn, loaded.seconds, loaded.evaluations) == (2, 7, 0.5, {"before"})
    assert loaded.rollout_rng.integers(10, dtype=np.uint32) == rollout_rng.integers(10, dtype=np.uint32)
    assert loaded.rollout_rng.random(5).tolist() == rollout_rng.random(5).tolist()
    assert resumed == straight[2:]
    for name, parameter in loaded.language_model.model.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name)), name
    assert loaded.language_model.tokenizer.get_vocab() == policy.tokenizer.get_vocab()
    assert loaded.language_model.tokenizer.chat_template == policy.tokenizer.chat_template


def test_a_fresh_optimizer_survives(tmp_path):
    save(tmp_path, 0)
    assert not load_checkpoint(tmp_path / "0", SETTINGS, device="cpu").optimizer.state


def test_folder_holds_no_pickle_and_no_leftovers(tmp_path):
    save(tmp_path, 3)
    assert names(tmp_path) == ["3"]
    assert {path.suffix for path in (tmp_path / "3").iterdir()} <= {".json", ".safetensors", ".jinja"}


def test_a_device_that_is_not_there_is_no_damage(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(ValueError, match='no device "cuda:99" here'):
        open_language_model(tmp_path / "1", device="cuda:99")


@pytest.fixture
def adapter_saved(tmp_path):
    base = tiny_model()
    adapted = base.changed(lambda model: add_adapter(copy.deepcopy(model), Adapter(2, 4.0), seed=0))
    save(tmp_path, 1, policy=adapted)
    return tmp_path / "1", base


def test_a_package_that_is_not_there_is_no_damage(adapter_saved, monkeypatch):
    folder, base = adapter_saved
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ValueError, match="needs the package peft") as error:
        _ = open_language_model(folder, base=base).model
    assert "Delete the checkpoint" not in str(error.value)


def test_too_little_memory_is_no_damage(tmp_path, monkeypatch):
    def full(*given, **named):
        raise torch.OutOfMemoryError

    save(tmp_path, 1)
    language_model = open_language_model(tmp_path / "1")
    monkeypatch.setattr(module, "load_model", full)
    with pytest.raises(torch.OutOfMemoryError):
        _ = language_model.model


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_one_flipped_bit_in_any_file_is_found(tmp_path, seed):
    save(tmp_path, 1)
    rng = np.random.default_rng(seed)
    for path in sorted((tmp_path / "1").iterdir()):
        whole = path.read_bytes()
        place = int(rng.integers(8 * len(whole)))
        path.write_bytes(flipped(whole, place))
        try:
            with pytest.raises(CheckpointError, match=f"Delete the checkpoint folder {tmp_path / '1'} to"):
                load_checkpoint(tmp_path / "1", SETTINGS, device="cpu")
            if path.name != "optimizer.safetensors":
                with pytest.raises(CheckpointError, match=f"Delete the checkpoint folder {tmp_path / '1'} to"):
                    open_language_model(tmp_path / "1")
        except BaseException as error:
            raise AssertionError(f"{path.name}, bit {place}") from error
        path.write_bytes(whole)
    load_checkpoint(tmp_path / "1", SETTINGS, device="cpu")


def flipped(whole, place):
    return whole[: place // 8] + bytes([whole[place // 8] ^ (1 << place % 8)]) + whole[place // 8 + 1 :]


def test_optimizer_state_of_another_model_is_an_error(tmp_path):
    policy = tiny_model()
    optimizer = make_optimizer(policy.model, SETTINGS)
    update_policy(
        Trained(policy.model, optimizer, copy.deepcopy(policy.model)),
        tiny_samples(4),
        SETTINGS,
        np.random.default_rng(0),
    )
    save(tmp_path, 1, policy=policy, optimizer=optimizer)
    other = tiny_model(layers=1)
    with pytest.raises(CheckpointError, match=r"layers\.1"):
        module._restore_optimizer(tmp_path / "1", other.model, make_optimizer(other.model, SETTINGS))
