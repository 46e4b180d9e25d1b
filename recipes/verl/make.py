"""Writes the published recipes beside this file: models × environments × K × estimators, all with the same settings.

    python recipes/verl/make.py

A test compares the files with what this script writes.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
MODELS = {"1.5b": ("Qwen/Qwen2.5-1.5B-Instruct", 2), "7b": ("Qwen/Qwen2.5-7B-Instruct", 4)}
ESTIMATORS = ("hgpo", "gigpo", "grpo")
HISTORY_LENGTHS = (2, 4)
ENVIRONMENTS = {
    "alfworld": {
        "max_steps": 50,
        "options": 'data_dir = "$ALFWORLD_DATA"',
        "train_split": "train",
        "template": "household-reasoning",
        "mini_batch_size": 256,
        "mode": "mean_std_norm",
        "split": "valid_seen",
    },
    "webshop": {
        "max_steps": 30,
        "options": 'data_dir = "$WEBSHOP_DATA"\nsplit_scheme = "verl-agent"',
        "train_split": "train",
        "template": "reasoning",
        "mini_batch_size": 64,
        "mode": "mean_norm",
        "split": "validation",
    },
}
OPTIONS = {
    "hgpo": """preset = "verl-agent"
mode = "{mode}"
weight_type = "length"
length_weight_alpha = 1.0
base_group = false""",
    "gigpo": """mode = "{mode}"
step_advantage_w = 1.0""",
    "grpo": """mode = "{mode}"
count = "step\"""",
}
TRAIN = """\
# {estimator} on {environment} with {model}, K = {history_length}: the published settings (README.md).

[run]
name = "{name}"
directory = "runs/{environment}-qwen2.5-{size}"
seed = 0

{environment_tables}

[agent]
history_length = {history_length}
template = "{template}"

[policy]
model = "{model}"
device = "cuda"
max_prompt_tokens = 4096
max_response_tokens = 512

[rollout]
tasks_per_update = 16
group_size = 8
temperature = 1.0
reward = "won"
reward_scale = 10.0
invalid_action_penalty = 0.1

[advantage]
estimator = "{estimator}"
gamma = 0.95

[advantage.options]
{options}

[training]
updates = 160
learning_rate = 1e-6
weight_decay = 0.01
mini_batch_size = {mini_batch_size}
epochs = 1
clip_low = 0.2
clip_high = 0.2
dual_clip = 3.0
kl_coefficient = 0.01
entropy_coefficient = 0.001
max_gradient_norm = 1.0
micro_batch_tokens = 32768
recompute_log_probs = true
precision = "bfloat16"
checkpoint_every = 40

[evaluation]
split = "{split}"
temperature = 0.4
seeds = [123]
every = 5

[verl]
nodes = 1
gpus_per_node = {gpus}
rollout = "vllm"
tensor_parallel = 1
agent_workers = 8
"""
EVALUATE = """\
# The published evaluation on {environment}: every game once per seed, temperature 0.4. It takes a trained policy, e.g.
#   hgpo train recipes/verl/evaluate-{environment}.toml policy.model=CHECKPOINT agent.history_length=2 --engine verl

[run]
name = "evaluate-{environment}"
engine = "verl"
seed = 0

{environment_tables}

[agent]
history_length = 2
template = "{template}"

[policy]
model = "Qwen/Qwen2.5-1.5B-Instruct"
device = "cuda"
max_prompt_tokens = 4096
max_response_tokens = 512

[evaluation]
split = "{split}"
temperature = 0.4
seeds = [123, 456, 789]

[verl]
evaluate_only = true
nodes = 1
gpus_per_node = 2
rollout = "vllm"
agent_workers = 8
"""


def recipes() -> dict[str, str]:
    """Every file's name and text."""
    files = {}
    for environment, settings in ENVIRONMENTS.items():
        tables = _environment_tables(environment, settings)
        common = {"environment": environment, "environment_tables": tables, **settings}
        files[f"evaluate-{environment}.toml"] = EVALUATE.format(**common)
        for size, (model, gpus) in MODELS.items():
            for history_length in HISTORY_LENGTHS:
                for estimator in ESTIMATORS:
                    values = {**common, "size": size, "model": model, "gpus": gpus, "estimator": estimator}
                    values |= {"options": OPTIONS[estimator].format(**settings), "history_length": history_length}
                    values["name"] = _experiment(estimator, history_length)
                    files[f"{environment}-{size}-k{history_length}-{estimator}.toml"] = TRAIN.format(**values)
    return files


def _experiment(estimator: str, history_length: int) -> str:
    """HGPO's experiments carry their published names, from which the published evaluation reads K."""
    published = "hgpo_length_alpha1.0_baseGroup_False"
    return f"k{history_length}_{published if estimator == 'hgpo' else estimator}"


def _environment_tables(environment: str, settings: dict[str, object]) -> str:
    return (
        f'[environment]\nname = "{environment}"\ntrain_split = "{settings["train_split"]}"\n'
        f"max_steps = {settings['max_steps']}\n\n[environment.options]\n{settings['options']}"
    )


if __name__ == "__main__":
    for name, text in recipes().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
