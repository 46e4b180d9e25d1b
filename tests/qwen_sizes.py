"""Sizes of the models that recipes name, as their config.json files have them: no test loads these from a hub."""

from __future__ import annotations

from hgpo.integrations.verl.rank_memory import Sizes
from hgpo.training.memory_estimate import ModelShape

QWEN = {
    "Qwen/Qwen2.5-0.5B-Instruct": Sizes(ModelShape(896, 24, 14, 2, 64, 4_864, 151_936), 494_032_768),
    "Qwen/Qwen2.5-1.5B-Instruct": Sizes(ModelShape(1_536, 28, 12, 2, 128, 8_960, 151_936), 1_543_714_304),
    "Qwen/Qwen2.5-7B-Instruct": Sizes(ModelShape(3_584, 28, 28, 4, 128, 18_944, 152_064), 7_615_616_512),
}
