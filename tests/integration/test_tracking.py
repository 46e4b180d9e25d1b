"""A run with trackers: what each of them wrote is read back through its own library."""

from __future__ import annotations

import json

import pytest
import yaml

from corridor_runs import quiet, recipe
from hgpo.assemble import resume, train
from hgpo.config import ConfigError
from hgpo.runs import trackers as tracking
from hgpo.runs.folder import read_metrics
from hgpo.runs.trackers import tracker_variables
from hgpo.training import trainer as trainer_module

KEY = "0123456789abcdef0123456789abcdef01234567"
READERS = {}


def reader(function):
    """How a tracker's files are read: figures as {name: {update: [values]}}, and the settings it shows as text."""
    READERS[function.__name__] = function
    return function


@reader
def tensorboard(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    figures = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            figures.setdefault(name, {}).setdefault(event.step, []).append(event.value)
    [settings] = run.path.glob("tensorboard/*/hparams.yml")
    return figures, {key: str(value) for key, value in yaml.safe_load(settings.read_text(encoding="utf-8")).items()}


@reader
def trackio(run):
    from trackio.sqlite_storage import SQLiteStorage

    figures = {}
    [name] = {record["name"] for record in SQLiteStorage.get_run_records("hgpo")}
    for row in SQLiteStorage.get_logs("hgpo", name):
        for key in row.keys() - {"step", "timestamp"}:
            figures.setdefault(key, {}).setdefault(row["step"], []).append(row[key])
    settings = SQLiteStorage.get_run_config("hgpo", name)
    return figures, {key: str(value) for key, value in settings.items()}


@reader
def mlflow(run):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{run.path.parent / 'mlflow.db'}")
    [found] = client.search_runs([client.get_experiment_by_name("hgpo").experiment_id])
    assert found.info.status == "FINISHED"
    assert {found.data.tags[f"mlflow.{name}"] for name in ("user", "source.name", "source.git.commit")} == {""}
    figures = {}
    for name in found.data.metrics:
        for metric in client.get_metric_history(found.info.run_id, name):
            figures.setdefault(name, {}).setdefault(metric.step, []).append(metric.value)
    return figures, found.data.params


def log_records(content):
    """The records of a .wandb file: blocks of 32 KiB; before each part checksum, length and kind (LevelDB's log)."""
    place, parts = 7, b""  # behind the file's own header
    while place + 7 <= len(content):
        left = 2**15 - place % 2**15
        if left < 7:
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


@reader
def wandb(run):
    from wandb.proto import wandb_internal_pb2

    figures, settings, ids = {}, {}, set()
    for path in sorted(run.path.glob("wandb/offline-run-*/*.wandb")):
        for data in log_records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                ids.add(record.run.run_id)
                settings |= {item.key: str(json.loads(item.value_json)) for item in record.run.config.update}
            row = {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in record.history.item}
            for key in row.keys() - {"update"}:
                if not key.startswith("_"):
                    figures.setdefault(key, {}).setdefault(row["update"], []).append(row[key])
    assert len(ids) == 1
    return figures, settings


@pytest.fixture(autouse=True)
def _no_variable_says_where(monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", "")  # so that it is taken back
    for name in tracker_variables():
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_API_KEY", KEY)


def stopped_in_its_second_update(monkeypatch, settings):
    """A run that has sent its first update and has no checkpoint."""
    once = trainer_module.Trainer.one_update

    def fail(self):
        if self.state.update == 1:
            raise KeyboardInterrupt
        return once(self)

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module.Trainer, "one_update", fail)
        with pytest.raises(KeyboardInterrupt):
            train(settings, quiet())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb", "mlflow"])
def test_a_run_and_its_continuation_are_one_in_the_tracker(name, tmp_path, monkeypatch):
    pytest.importorskip(name, reason=f"{name} is not installed: pip install 'hgpo[{name}]'")
    settings = recipe(tmp_path, "training.updates=2", "evaluation.every=1", f'tracking.to=["{name}"]')
    stopped_in_its_second_update(monkeypatch, settings)
    run = resume(tmp_path / "corridor", quiet())
    figures, shown = READERS[name](run)
    rows = read_metrics(run)
    sent = {key for key, value in rows[0].items() if key != "update" and value is not None}
    assert sent == {key for key in figures if not key.startswith("val/")}
    assert set(figures["success"]) == {1, 2}
    for row in rows:
        assert figures["success"][row["update"]] == [pytest.approx(row["success"])]
    assert {update: len(values) for update, values in figures["val/success"].items()} == {0: 1, 1: 1, 2: 1}
    after = json.loads(run.evaluation("after").read_text(encoding="utf-8"))
    assert figures["val/success_low"][2] == [pytest.approx(after["success"]["low"])]
    assert shown["training.updates"] == "2"
    assert shown["environment.name"] == "corridor:CorridorSuite"
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if KEY.encode() in path.read_bytes()]


def test_one_that_is_not_installed_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=r"pip install 'hgpo\[mlflow\]'"):
        train(recipe(tmp_path, 'tracking.to=["mlflow"]'), quiet())
    assert list(tmp_path.iterdir()) == []
