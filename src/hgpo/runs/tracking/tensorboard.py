"""TensorBoard: event files, through the package `tensorboard` alone (no PyTorch, no TensorFlow)."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from hgpo.runs.tracking.base import Shown, as_texts
from hgpo.runs.tracking.known import place


class TensorBoard:
    """A file of events for each process of a run, all in one folder."""

    def __init__(self, shown: Shown) -> None:
        folder = place("TENSORBOARD_DIR", shown.folder)
        self.id = shown.name
        self.look = f"tensorboard --logdir {folder}"
        self._writer = EventFileWriter(folder)
        if shown.id is None:
            self._write(hparams_pb(dict(shown.settings), trial_id=shown.name), 0)
            self._write(_text("settings", _table(as_texts(shown.settings))), 0)
        else:  # TensorBoard drops what an earlier file says of this step and later ones
            start = SessionLog(status=SessionLog.START)
            self._writer.add_event(Event(wall_time=time.time(), step=shown.sent + 1, session_log=start))

    def log(self, update: int, figures: Mapping[str, float]) -> None:
        """One scalar a figure; on disk when this returns."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._write(Summary(value=values), update)
        self._writer.flush()

    def close(self, *, failed: bool) -> None:
        """End the file; event files know no failure."""
        self._writer.close()

    def _write(self, summary: Summary, step: int) -> None:
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))


def _text(tag: str, text: str) -> Summary:
    """A summary for the page of texts, which reads Markdown."""
    tensor = TensorProto(
        dtype=DT_STRING,
        string_val=[text.encode()],
        tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
    )
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    return Summary(value=[Summary.Value(tag=tag, tensor=tensor, metadata=metadata)])


def _table(settings: Mapping[str, str]) -> str:
    rows = [f"| {name} | {value.replace('|', chr(92) + '|')} |" for name, value in settings.items()]
    return "\n".join(["| setting | value |", "|---|---|", *rows])
