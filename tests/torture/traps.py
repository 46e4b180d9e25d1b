"""Code that waits in files to be run: a mark on the disk tells whether anything did.

Reading runs nothing, from wherever a file may come; what plays a stranger's run asks first (`--trust`), and trusts its
modules alone: never its pickles, its templates, or the code that a model brings.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from torture.invoking import invoke
from torture.outcomes import Outcome
from torture.specimen import RUN, make_specimen

_MARK = "somebody_ran_this"
_CODE = f"import pathlib; pathlib.Path({_MARK!r}).touch()"
_READING = (
    ["inspect", RUN],
    ["advantages", RUN],
    ["compare", RUN],
    ["audit", RUN],
    ["train", "--resume", RUN, "--dry-run"],
)
_PLAYING = (["eval", RUN], ["rollout", RUN, "-o", "steps.jsonl"], ["play", RUN], ["export", RUN, "-o", "out"])


class _Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return exec, (_CODE,)


def traps(folder: Path, rng: Random) -> Iterator[Outcome]:
    """One trap, and one command that walks past it."""
    run = make_specimen(folder.parent / "specimen").finished / RUN
    while True:
        cwd = folder / "case"
        shutil.rmtree(cwd, ignore_errors=True)
        cwd.mkdir()
        shutil.copytree(run, cwd / RUN)
        (cwd / RUN / "made_here").unlink()  # it is somebody else's
        laid = rng.choice(_TRAPS)
        laid(cwd)
        words = rng.choice([*_READING, *_PLAYING, *([["eval", "model", *_AS_MODEL]] if laid in _OF_MODELS else [])])
        case = f"{' '.join(words)} past {laid.__name__.strip('_').replace('_', ' ')}"
        invocation = invoke(words, cwd)
        if (cwd / _MARK).exists():
            yield Outcome("failed", case, "the trap was sprung")
        elif invocation.fault:
            yield Outcome("failed", case, invocation.fault)
        else:
            yield Outcome("error" if invocation.status else "same", case)


_AS_MODEL = ("--env", "corridor:CorridorSuite", "--split", "held_out", "-o", "e.json", "environment.max_steps=2")


def _a_module_that_the_run_names(cwd: Path) -> None:
    (cwd / "trap.py").write_text(f"{_CODE}\nfrom corridor import CorridorSuite as Suite\n")
    path = cwd / RUN / "config.toml"
    path.write_text(path.read_text().replace("corridor:CorridorSuite", "trap:Suite"))


def _an_estimator_that_the_run_names(cwd: Path) -> None:
    (cwd / "trap.py").write_text(f"{_CODE}\nESTIMATOR = None\n")
    path = cwd / RUN / "config.toml"
    path.write_text(path.read_text().replace('estimator = "hgpo"', 'estimator = "trap:ESTIMATOR"'))


def _a_model_with_code_of_its_own(cwd: Path) -> None:
    for folder in _model_folders(cwd):
        (folder / "modeling_trap.py").write_text(f"{_CODE}\nfrom transformers import LlamaForCausalLM as Model\n")
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config["auto_map"] = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM"), "modeling_trap.Model")
        path.write_text(json.dumps(config))


def _a_pickle_in_place_of_weights(cwd: Path) -> None:
    for folder in _model_folders(cwd):
        (folder / "model.safetensors").unlink()
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Bomb()))


def _a_pickle_that_is_called_safetensors(cwd: Path) -> None:
    for folder in _model_folders(cwd):
        (folder / "model.safetensors").write_bytes(pickle.dumps(_Bomb()))


def _a_chat_template_that_reaches_for_python(cwd: Path) -> None:
    reach = "{{ cycler.__init__.__globals__.os.system('touch " + _MARK + "') }}"
    for folder in _model_folders(cwd):
        (folder / "chat_template.jinja").write_text(reach)


def _pickles_in_place_of_rollouts(cwd: Path) -> None:
    for path in (cwd / RUN / "rollouts").iterdir():
        path.write_bytes(pickle.dumps(_Bomb()))


def _pickles_in_place_of_state(cwd: Path) -> None:
    for name in ("optimizer.safetensors", "trainer_state.json"):
        for path in (cwd / RUN).rglob(name):
            path.write_bytes(pickle.dumps(_Bomb()))


def _a_module_called_like_one_of_ours(cwd: Path) -> None:
    for name in ("hgpo.py", "torch.py", "json.py", "sitecustomize.py", "corridor_hooks.py"):
        (cwd / RUN / name).write_text(_CODE)


def _model_folders(cwd: Path) -> list[Path]:
    """The run's own, which have checksums, and a copy without them."""
    shutil.copytree(cwd / RUN / "start", cwd / "model", ignore=shutil.ignore_patterns("contents.json"))
    return [*(cwd / RUN / "checkpoints").iterdir(), cwd / RUN / "start", cwd / "model"]


_OF_MODELS: tuple[Callable[[Path], None], ...] = (
    _a_model_with_code_of_its_own,
    _a_pickle_in_place_of_weights,
    _a_pickle_that_is_called_safetensors,
    _a_chat_template_that_reaches_for_python,
)
_TRAPS: tuple[Callable[[Path], None], ...] = (
    *_OF_MODELS,
    _a_module_that_the_run_names,
    _an_estimator_that_the_run_names,
    _pickles_in_place_of_rollouts,
    _pickles_in_place_of_state,
    _a_module_called_like_one_of_ours,
)
