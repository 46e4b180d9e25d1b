"""What every process of a verl run loads, through `VERL_USE_EXTERNAL_MODULES=hgpo.integrations.verl.plugin`.

It makes the agent loop, the losses and the trainer known by name, and on machines without a GPU the parts that verl
lacks there.
A plugin that cannot be loaded this way stops the process with its error; a `verl.plugins` entry point would not.
"""

import os
from importlib import import_module

from hgpo.integrations.verl.cpu.vllm import answer_for_vllm

PARTS = ["engine_repairs", "agent_loop", "losses", "hgpo_trainer"]
if os.environ.get("VERL_PLATFORM") == "cpu":  # first: other modules of verl ask which platform there is
    PARTS = ["cpu.platform", "cpu.engine", *PARTS]
    answer_for_vllm()

for part in PARTS:
    import_module(f"hgpo.integrations.verl.{part}")
