from __future__ import annotations

from pathlib import Path

from hgpo.integrations.verl.checkpoints import publish
from hgpo.training.checkpoint import newest_complete, read_trainer_state
from tiny_models import tiny_model


def weights(folder: Path) -> Path:
    policy = tiny_model()
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return folder


def test_it_is_a_checkpoint_as_the_built_in_trainer_knows_them(tmp_path: Path) -> None:
    publish(weights(tmp_path / "hf"), tmp_path / "checkpoints", 3, {"engine": "verl", "tasks_drawn": 12}, keep=2)
    newest = newest_complete(tmp_path / "checkpoints")
    assert newest == tmp_path / "checkpoints" / "3"
    assert read_trainer_state(newest)["state"] == {"engine": "verl", "tasks_drawn": 12}
    assert (newest / "model.safetensors").read_bytes() == (tmp_path / "hf" / "model.safetensors").read_bytes()


def test_the_newest_stay_and_one_of_the_same_number_is_replaced(tmp_path: Path) -> None:
    source = weights(tmp_path / "hf")
    for update in (1, 2, 10, 10):
        publish(source, tmp_path / "checkpoints", update, {}, keep=2)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["10", "2"]
