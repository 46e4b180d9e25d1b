import copy
import shutil

import numpy as np
import pytest
import torch

from hgpo.config import TrainingSettings
from hgpo.runs.checkpoints import CheckpointError, newest_complete, restore_generator
from hgpo.training import checkpoint as module
from hgpo.training.checkpoint import load_checkpoint, open_language_model, save_checkpoint
from hgpo.training.update import Trained, make_optimizer, update_policy
from tiny_models import tiny_model, tiny_samples

SETTINGS = TrainingSettings(learning_rate=1e-3, mini_batch_size=8)


def save(folder, update, *, state=None, policy=None, optimizer=None):
    policy = policy or tiny_model()
    optimizer = optimizer or make_optimizer(policy.model, SETTINGS)
    save_checkpoint(
        folder,
        update,
        model=policy.model,
        tokenizer=policy.tokenizer,
        optimizer=optimizer,
        state=state or {},
    )


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_continuing_from_a_checkpoint_is_bit_identical(tmp_path):
    policy, samples = tiny_model(), tiny_samples(20)
    reference = copy.deepcopy(policy.model)
    model, optimizer, rng = policy.model, make_optimizer(policy.model, SETTINGS), np.random.default_rng(5)
    straight = []
    for update in range(4):
        if update == 2:
            save(tmp_path, 2, policy=policy, optimizer=optimizer, state={"rng": rng.bit_generator.state, "note": "ü"})
        straight.append(update_policy(Trained(model, optimizer, reference), samples, SETTINGS, rng))
    loaded = load_checkpoint(tmp_path / "2", SETTINGS, device="cpu")
    rng = restore_generator(loaded.state["rng"])
    resumed = [
        update_policy(Trained(loaded.language_model.model, loaded.optimizer, reference), samples, SETTINGS, rng)
        for _ in range(2)
    ]
    assert loaded.update == 2
    assert loaded.state["note"] == "ü"
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


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "trainer_state.json", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_damaged_checkpoints_are_skipped_with_a_message(tmp_path, caplog, file, damage):
    save(tmp_path, 1)
    shutil.copytree(tmp_path / "1", tmp_path / "2")
    path = tmp_path / "2" / file
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-7])
    assert newest_complete(tmp_path) == tmp_path / "1"
    assert file in caplog.text
    with pytest.raises(CheckpointError, match=rf"{file}.*Delete the checkpoint folder"):
        load_checkpoint(tmp_path / "2", SETTINGS)
    with pytest.raises(CheckpointError, match=rf"{file}.*Delete the checkpoint folder"):
        open_language_model(tmp_path / "2")


def test_a_device_that_is_not_there_is_no_damage(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(ValueError, match='no device "cuda:99" here'):
        open_language_model(tmp_path / "1", device="cuda:99")


def test_garbage_inside_a_file_of_the_right_size_is_an_error(tmp_path):
    for file in ("model.safetensors", "optimizer.safetensors"):
        save(tmp_path, 1)
        path = tmp_path / "1" / file
        path.write_bytes(b"\xff" * path.stat().st_size)
        with pytest.raises(CheckpointError, match="Delete the checkpoint folder"):
            load_checkpoint(tmp_path / "1", SETTINGS, device="cpu")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_one_flipped_bit_in_any_file_is_found(tmp_path, seed):
    save(tmp_path, 1, state={"rng": np.random.default_rng(0).bit_generator.state})
    rng = np.random.default_rng(seed)
    for path in sorted((tmp_path / "1").iterdir()):
        whole = path.read_bytes()
        place = int(rng.integers(8 * len(whole)))
        path.write_bytes(flipped(whole, place))
        try:
            with pytest.raises(CheckpointError, match=f"Delete the checkpoint folder {tmp_path / '1'} to"):
                load_checkpoint(tmp_path / "1", SETTINGS, device="cpu")
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


def test_dying_while_writing_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    save(tmp_path, 1, state={"count": 1})

    def die(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(module, "save_file", die)
        with pytest.raises(OSError, match="disk full"):
            save(tmp_path, 2)
        assert newest_complete(tmp_path) == tmp_path / "1"
    save(tmp_path, 2)
    assert names(tmp_path) == ["1", "2"]
