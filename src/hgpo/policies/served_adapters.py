"""Adapters of a server that takes them while it runs, as vLLM's does: through a folder that it sees, too."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from hgpo.policies.adapters import save_adapter
from hgpo.policies.server import Server, ServerRefused, reason


class ServedAdapters:
    """Hands over one adapter after another; the server holds the last.

    A name is never used again, by no process: servers keep what they computed of a prompt under the adapter's name, and
    still hold the adapters of a run that was killed.

    Example: `ServedAdapters(Server("http://127.0.0.1:8000/v1"), Path("/tmp/adapters")).hand_over(model)` is
    "hgpo-3f9c01ab-1", a name that the server answers by.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        """Nothing is asked, and nothing written, yet.

        Args:
            server: takes them.
            folder: where they lie, under the same path for the server.
        """
        self._server, self._folder = server, folder.resolve()
        self._process = uuid4().hex[:8]  # part of a name, and of nothing that is computed
        self._handed_over = 0
        self._held: str | None = None

    def hand_over(self, model: Any) -> str:
        """Give the server the adapter of `model`, and take the one before it away; returns the name of the new one.

        Raises:
            ServerRefused: the server does not take it.
        """
        self._handed_over += 1
        name = f"hgpo-{self._process}-{self._handed_over}"
        folder = self._folder / name
        try:
            save_adapter(model, folder)
            # In place, so that it may be sent again where an answer was lost; the name is new.
            self._post("/load_lora_adapter", {"lora_name": name, "lora_path": str(folder), "load_inplace": True})
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        previous, self._held = self._held, name
        if previous is not None:
            self._post("/unload_lora_adapter", {"lora_name": previous}, may_be_gone=True)
            shutil.rmtree(self._folder / previous, ignore_errors=True)  # what stays there harms nobody
        return name

    def _post(self, path: str, body: Mapping[str, Any], *, may_be_gone: bool = False) -> None:
        import openai

        try:
            with openai.OpenAI(**self._server.connection()) as client:
                client.post(path, body=dict(body), cast_to=str)
        except openai.OpenAIError as error:
            if may_be_gone and isinstance(error, openai.NotFoundError):  # the server was started anew
                return
            raise ServerRefused(
                f"{self._server.url}{path}: {reason(error)}. The server must take adapters of "
                f"policy.lora.rank while it runs, and see {self._folder}; vLLM: VLLM_ALLOW_RUNTIME_LORA_UPDATING=True "
                "vllm serve … --enable-lora --max-lora-rank …"
            ) from error
