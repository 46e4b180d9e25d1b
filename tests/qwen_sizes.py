"""Sizes of the models that recipes name, as their config.json files have them: no test loads these from a hub."""

from __future__ import annotations

from hgpo.training.run_plan import ModelSummary

QWEN = {
    "Qwen/Qwen2.5-0.5B-Instruct": ModelSummary(494_032_768, 896, 4_864, 128, 24, 151_936),
    "Qwen/Qwen2.5-1.5B-Instruct": ModelSummary(1_543_714_304, 1_536, 8_960, 256, 28, 151_936),
    "Qwen/Qwen2.5-7B-Instruct": ModelSummary(7_615_616_512, 3_584, 18_944, 512, 28, 152_064),
}
