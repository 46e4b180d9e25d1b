"""CPU milliseconds per row (a step) in verl's processes, without ranks and rollout servers.

    .venv-verl/bin/python benchmarks/verl_rows.py                              two measured updates, about five minutes
    PYTHONPATH=OTHER/src .venv-verl/bin/python benchmarks/verl_rows.py         another checkout's package

Ray, TransferQueue, verl's agent workers and request client, and this project's agent loop, environment workers and
trainer run as in a training, on the published ALFWorld recipe with generated games of full size: 16 tasks, 8 episodes
of each, prompts of about 600 tokens, responses of 30 to 100. The rollout server and the ranks are stand-ins and not
counted: the server answers at once with generated text; the ranks read and write the columns that real ranks do. The
first update is not measured. Other work on the machine changes CPU time little, but the CPU time of "trainer,
waiting" and of Ray's own processes grows with the duration of the episodes.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from hgpo.agents.prompts import HOUSEHOLD_REASONING, AgentContext
from hgpo.assemble import training_suite
from hgpo.config import Config, load_config
from hgpo.integrations.verl import launch
from hgpo.policies.tiny import build_model, build_tokenizer

RECIPE = Path(__file__).parents[1] / "recipes" / "verl" / "alfworld.toml"
DEMANDED = 4.0
PARTS = (
    ("ranks", r"^ray::Ranks"),
    ("rollout servers", r"^ray::ScriptedServer"),
    ("agent workers", r"^ray::\w*(AgentLoop|Episode)Worker"),
    ("environment workers", r"hgpo\.integrations\.verl\.env_worker"),
    ("request router", r"^ray::\w*(LoadBalancer|Router)"),
    ("queue's storage", r"^ray::SimpleStorageUnit"),
    ("queue's controller", r"^ray::TransferQueueController"),
)
"""Name of a part -> pattern of its processes' command lines."""
NOT_COUNTED = ("ranks", "rollout servers")
THOUGHT = "i look for the thing that the task names so i go where it may be and then i carry it to its place"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=2, help="measured ones")
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(recipe(Path(folder)), arguments.updates)
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    show(found, Console())


def recipe(folder: Path) -> Config:
    """The published recipe on a CPU, with a model whose tokenizer knows the games' words."""
    games = {"size": "full", "train_games": 64, "valid_seen_games": 1, "valid_unseen_games": 1}
    changed = {
        "run.directory": folder,
        "run.threads": 1,
        "environment.max_steps": 30,
        "environment.options": json.dumps(games).replace(":", "="),
        "policy.system_prompt": " ".join([THOUGHT] * 10),  # brings prompts to the length of the published model's
        "policy.model": folder / "model",
        "policy.device": "cpu",
        "policy.precision": "float32",
        "rollout.tasks_per_update": 16,
        "verl.agent_workers": 2,
        "verl.ray_cpus": 6,
    }
    config = load_config(RECIPE, [f"{name}={value}" for name, value in changed.items()])
    suite = training_suite(config.environment, config.evaluation, config.warm_start)
    texts = [THOUGHT, HOUSEHOLD_REASONING.respond("look")]
    for task in suite.tasks("train"):
        observation, info = task.make().reset(seed=0)
        seen = AgentContext(info["task"], observation, 1, (("a", "b"),), tuple(info["admissible_commands"]))
        texts.append(HOUSEHOLD_REASONING.render(seen))
    tokenizer = build_tokenizer(texts)
    tokenizer.save_pretrained(folder / "model")
    build_model(len(tokenizer), max_tokens=8192).save_pretrained(folder / "model")
    return config


class ScriptedServer:
    """A rollout server without a model: a thought of random words, then one of the actions in the prompt."""

    def __init__(self, path: str) -> None:
        from transformers import AutoTokenizer

        self._tokenizer, self._rng = AutoTokenizer.from_pretrained(path), np.random.default_rng(0)

    async def generate(self, prompt_ids: list[int], **_: Any) -> Any:
        """One response, as verl's servers return it."""
        from verl.workers.rollout.replica import TokenOutput

        offered = self._tokenizer.decode(prompt_ids).partition("these actions:")[2].partition("first reason")[0]
        action = self._rng.choice(offered.split("-")[1:]).strip()
        thought = " ".join(self._rng.choice(THOUGHT.split(), self._rng.integers(15, 86)))
        text = HOUSEHOLD_REASONING.respond(action).replace("<think>", f"<think>{thought}")
        tokens = [*self._tokenizer(text)["input_ids"], self._tokenizer.eos_token_id]
        log_probs = (-self._rng.random(len(tokens))).tolist()
        return TokenOutput(token_ids=tokens, log_probs=log_probs, extra_fields={"global_steps": 0})


class Ranks:
    """A stand-in for the training processes, without a model: it reads and writes the columns that ranks do."""

    def __init__(self) -> None:
        import transfer_queue

        transfer_queue.init()

    def score(self, batch: Any, columns: tuple[str, ...]) -> Any:
        """Read what a forward pass reads, write a number for each token."""
        import torch
        import transfer_queue
        from tensordict import TensorDict

        read = transfer_queue.kv_batch_get(batch.keys, batch.partition_id, select_fields=batch.fields)
        numbers = [torch.zeros(len(row)) for row in read["input_ids"].unbind()]
        written = {name: torch.nested.as_nested_tensor(numbers, layout=torch.jagged) for name in columns}
        fields = TensorDict(written, batch_size=len(batch.keys))
        return transfer_queue.kv_batch_put(batch.keys, batch.partition_id, fields=fields)

    def update(self, batch: Any) -> dict[str, Any]:
        """Read what an update reads."""
        import transfer_queue

        transfer_queue.kv_batch_get(batch.keys, batch.partition_id, select_fields=batch.fields)
        return {"metrics": {"mfu": [0.0], "pg_loss": [0.0], "grad_norm": [1.0]}}


def measure(config: Config, updates: int) -> dict[str, Any]:
    """CPU milliseconds a row by part, over all measured updates."""
    verl_config = launch.compose(config)
    launch._start_ray(config.verl, verl_config, quiet=True)
    import transfer_queue
    from omegaconf import OmegaConf, open_dict

    with open_dict(verl_config):
        verl_config.transfer_queue.enable = True
    OmegaConf.resolve(verl_config)
    transfer_queue.init(verl_config.transfer_queue)
    trainer = make_trainer(verl_config)
    trainer.agent_loop_manager = make_manager(verl_config, config.policy.model)
    tags, before, started = one_update(trainer, 1), cpu_seconds(), time.monotonic()
    trainer.waited, tags = 0.0, []
    for update in range(2, updates + 2):
        tags += one_update(trainer, update)
    spent = Counter(cpu_seconds())
    spent.subtract(before)
    spent["trainer, waiting"] = trainer.waited
    spent["trainer, working"] = spent.pop("trainer") - trainer.waited
    return {
        "rows": len(tags),
        "prompt_tokens": sum(tag["prompt_len"] for tag in tags) / len(tags),
        "response_tokens": sum(tag["response_len"] for tag in tags) / len(tags),
        "seconds": time.monotonic() - started,
        "milliseconds_a_row": {part: 1000 * seconds / len(tags) for part, seconds in sorted(spent.items())},
    }


def one_update(trainer: Any, update: int) -> list[dict[str, Any]]:
    """One update as verl's loop runs it; the tags of its steps."""
    import transfer_queue

    trainer.global_steps, trainer.timing_raw, metrics = update, {}, {}
    began = time.monotonic()
    batch = trainer.step(metrics, trainer.timing_raw)
    trainer.timing_raw["step"] = time.monotonic() - began
    trainer._compute_metrics(batch, metrics, trainer.timing_raw, global_steps=update, epoch=0)
    transfer_queue.kv_clear(keys=batch.keys, partition_id=batch.partition_id)
    return [tag for tag in batch.tags if not tag.get("is_padding")]


def make_trainer(verl_config: Any) -> Any:
    """The trainer after verl's set-up, with stand-ins for ranks and servers."""
    import ray

    from hgpo.integrations.verl.trainer import HgpoTrainer
    from hgpo.utils.progress import Reporter

    trainer: Any = HgpoTrainer(verl_config)
    trainer._init_tokenizer()
    actor = ray.remote(Ranks).options(num_cpus=0).remote()

    def score(*columns: str) -> Any:
        return lambda batch: ray.get(actor.score.remote(batch, columns))

    trainer.actor_rollout_wg = trainer.ref_policy_wg = SimpleNamespace(
        _dispatch_info={"actor": [0, 1]},
        compute_log_prob=score("log_probs", "entropy"),
        compute_ref_log_prob=score("ref_log_prob"),
        update_actor=lambda batch: ray.get(actor.update.remote(batch)),
    )
    trainer.ref_in_actor, trainer.curr_step_profile, trainer.reporter = False, False, Reporter(quiet=True)
    trainer.checkpoint_manager = SimpleNamespace(sleep_replicas=lambda: None)
    trainer.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=[])
    trainer.waited, sample = 0.0, trainer.replay_buffer.sample

    def timed_sample(**arguments: Any) -> Any:
        began = time.process_time()
        found = sample(**arguments)
        trainer.waited += time.process_time() - began
        return found

    trainer.replay_buffer.sample = timed_sample
    return trainer


def make_manager(verl_config: Any, model: str) -> Any:
    """The agent workers' manager, chosen as verl chooses it, with a client of the scripted server."""
    import ray
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ
    from verl.utils.import_utils import load_class_from_fqn
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.router import get_router_handle

    server = ray.remote(ScriptedServer).options(num_cpus=0).remote(model)
    client = LLMServerClient(verl_config, get_router_handle({"scripted": server}))
    named = verl_config.actor_rollout_ref.rollout.agent.get("agent_loop_manager_class")
    manager = load_class_from_fqn(named, "AgentLoopManager") if named else AgentLoopManagerTQ
    return manager.create(config=verl_config, llm_client=client)


def cpu_seconds() -> dict[str, float]:
    """CPU time so far by part: of this process, the trainer's, and of its descendants."""
    spent = Counter({"trainer": time.process_time()})
    for process in psutil.Process().children(recursive=True):
        try:
            line, times = " ".join(process.cmdline()), process.cpu_times()
        except psutil.Error:  # it has ended
            continue
        part = next((name for name, pattern in PARTS if re.search(pattern, line)), "Ray's own processes")
        spent[part] += times.user + times.system
    return dict(spent)


def show(found: dict[str, Any], console: Console) -> None:
    """Print the table, the sum, and its limit."""
    table = Table("part", "ms a row", title=f"{found['rows']} rows, {found['seconds']:.0f} s")
    counted = {part: took for part, took in found["milliseconds_a_row"].items() if part not in NOT_COUNTED}
    for part, took in sorted(counted.items(), key=lambda item: -item[1]):
        table.add_row(part, f"{took:.2f}")
    table.add_row("[bold]sum", f"[bold]{sum(counted.values()):.2f}")
    for part in NOT_COUNTED:
        table.add_row(f"[dim]{part} (stand-ins, not counted)", f"[dim]{found['milliseconds_a_row'][part]:.2f}")
    console.print(table)
    lengths = f"{found['prompt_tokens']:.0f} prompt and {found['response_tokens']:.0f} response tokens a row"
    console.print(f"{lengths}; demanded: at most {DEMANDED} ms a row")


if __name__ == "__main__":
    main()
