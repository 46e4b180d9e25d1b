"""A real tiny model behind the part of vLLM's protocol that training uses: token ids, log-probs, adapters at run time.

Shape suffixes: T tokens of the response.
"""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chat_server import ChatServer, Reply, fails, says
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.sampler import SampledTokens, sample_responses
from hgpo.policies.weights import load_adapter
from hgpo.training.batching import Sample
from hgpo.training.log_probs import response_log_probs


@cache
def _read(folder: Path) -> LanguageModel:
    """The model in a folder, which no server changes."""
    return LanguageModel.from_pretrained(folder, device="cpu", dtype="float32")


class ServedModel:
    """Draws what it is asked for by the request's seed, each request by itself.

    Attributes:
        server: speaks for it.
        name: what the model without adapters is asked by.
        loaded: the models with adapters, by name.
        events: "load NAME", "unload NAME" and "answer NAME" in the order of their coming; answers in a row are one.
        tempered: whether log-probs are of the distribution that was drawn from; if not, of that at temperature 1.
        uses_adapters: whether it answers with an adapter that it took; if not, with the model alone.
    """

    def __init__(self, folder: Path, *, tempered: bool = True, uses_adapters: bool = True) -> None:
        self.name, self.tempered, self.uses_adapters = str(folder), tempered, uses_adapters
        self._base = _read(folder)
        self.loaded: dict[str, Any] = {}
        self.events: list[str] = []
        others = {"/load_lora_adapter": self._load, "/unload_lora_adapter": self._unload}
        self.server = ChatServer(self.answer, others)

    def answer(self, body: dict[str, Any]) -> Reply:
        """A completion, with what else was asked for."""
        name = body["model"]
        if name != self.name and name not in self.loaded:
            return fails(404)
        if self.events[-1:] != [f"answer {name}"]:
            self.events.append(f"answer {name}")
        model = self.loaded[name] if name in self.loaded and self.uses_adapters else self._base.model
        prompt_ids = self._prompt_ids(body)
        drawn = self._draw(model, prompt_ids, body)
        text = self._base.tokenizer.decode(drawn.token_ids.tolist(), skip_special_tokens=True)
        finish = "stop" if drawn.finished else "length"
        document = json.loads(
            says(text, prompt_tokens=len(prompt_ids), response_tokens=len(drawn.token_ids), finish=finish).body
        )
        [choice] = document["choices"]
        if body.get("return_token_ids"):
            document["prompt_token_ids"], choice["token_ids"] = prompt_ids.tolist(), drawn.token_ids.tolist()
        if body.get("logprobs"):
            choice["logprobs"] = {"content": self._scored(model, prompt_ids, drawn.token_ids, body)}
        return Reply(json.dumps(document).encode())

    def _load(self, body: dict[str, Any]) -> Reply:
        name = body["lora_name"]
        if name in self.loaded and not body.get("load_inplace"):
            return fails(400)
        self.events.append(f"load {name}")
        self.loaded[name] = load_adapter(copy.deepcopy(self._base.model), Path(body["lora_path"]))
        return Reply(b"Success", headers={"content-type": "text/plain"})

    def _unload(self, body: dict[str, Any]) -> Reply:
        if self.loaded.pop(body["lora_name"], None) is None:
            return fails(404)
        self.events.append(f"unload {body['lora_name']}")
        return Reply(b"Success", headers={"content-type": "text/plain"})

    def _prompt_ids(self, body: dict[str, Any]) -> NDArray[np.int32]:
        """As servers read messages: a control token that is spelled out in one is a control token."""
        text = self._base.tokenizer.apply_chat_template(
            body["messages"], add_generation_prompt=True, tokenize=False, **body.get("chat_template_kwargs", {})
        )
        return np.asarray(self._base.tokenizer(text, add_special_tokens=False)["input_ids"], dtype=np.int32)

    def _draw(self, model: Any, prompt_ids: NDArray[np.int32], body: dict[str, Any]) -> SampledTokens:
        temperature, length = body["temperature"], body["max_tokens"]
        uniform_T = np.random.default_rng(body.get("seed", 0)).random(length)
        [drawn] = sample_responses(
            model,
            [prompt_ids],
            uniform_BT=uniform_T[None] if temperature else None,
            temperature=temperature,
            max_tokens=length,
            end_tokens=self._base.end_tokens,
            pad_token=self._base.tokenizer.pad_token_id,
        )
        return drawn

    def _scored(
        self, model: Any, prompt_ids: NDArray[np.int32], token_ids: NDArray[np.int32], body: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Log-probs of the tokens and, for the first, that of the likeliest, as far as it was asked for."""
        temperature = (body["temperature"] if self.tempered else 0) or 1.0
        no_log_probs_T = np.zeros(len(token_ids), dtype=np.float32)
        [log_prob_T] = response_log_probs(
            model, [Sample(prompt_ids, token_ids, no_log_probs_T, 0.0)], temperature=temperature, precision="float32"
        )
        scored: list[dict[str, Any]] = [
            {"token": str(token), "logprob": float(log_prob), "top_logprobs": []}
            for token, log_prob in zip(token_ids, log_prob_T, strict=True)
        ]
        if body.get("top_logprobs"):
            with torch.no_grad():
                logits_V = model(torch.from_numpy(prompt_ids)[None].long()).logits[0, -1]
            likeliest = float((logits_V / temperature).log_softmax(-1).max())
            scored[0]["top_logprobs"] = [{"token": "?", "logprob": likeliest}]
        return scored
