"""MLflow: a SQLite database beside the runs, or the server that `MLFLOW_TRACKING_URI` names."""

from __future__ import annotations

import logging
import re
import shlex
import time
from collections.abc import Mapping

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from hgpo.runs.tracking.base import Shown, as_texts
from hgpo.runs.tracking.known import PROJECT, place, without_secrets

_UNFIT = re.compile(r"[^\w\-. :/]")  # what names of metrics may not hold
_LONGEST = 6000  # characters of a parameter
_PARAMETERS = 100  # at a time


class Mlflow:
    """A run of the experiment `hgpo`. Each call is answered before it returns."""

    def __init__(self, shown: Shown) -> None:
        logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells of every table that it makes
        address = place("MLFLOW_TRACKING_URI", shown.folder)
        self._client = MlflowClient(tracking_uri=address, registry_uri=address)
        self.look = f"mlflow ui --backend-store-uri {shlex.quote(without_secrets(address))}"
        if shown.id is None:
            self.id = self._client.create_run(self._experiment(), run_name=shown.name).info.run_id
            self._log_settings(as_texts(shown.settings))
        else:
            self.id = self._client.get_run(shown.id).info.run_id
            self._client.update_run(self.id, status="RUNNING")

    def log(self, update: int, figures: Mapping[str, float]) -> None:
        """One metric a figure; characters that MLflow does not take in names become underlines."""
        now = int(1000 * time.time())
        metrics = [Metric(_UNFIT.sub("_", name), value, now, update) for name, value in figures.items()]
        self._client.log_batch(self.id, metrics=metrics)

    def close(self, *, failed: bool) -> None:
        """Say how it ended."""
        self._client.set_terminated(self.id, "FAILED" if failed else "FINISHED")

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(PROJECT)
        return str(self._client.create_experiment(PROJECT) if found is None else found.experiment_id)

    def _log_settings(self, settings: Mapping[str, str]) -> None:
        parameters = [Param(name, value[:_LONGEST]) for name, value in settings.items()]
        for first in range(0, len(parameters), _PARAMETERS):
            self._client.log_batch(self.id, params=parameters[first : first + _PARAMETERS])
