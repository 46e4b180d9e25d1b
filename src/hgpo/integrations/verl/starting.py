"""The warm start in a process of its own: what it held of a GPU is free again before verl asks for all of it.

A process keeps its CUDA context and what PyTorch's allocator has cached for as long as it lives, and the one that
starts a run on verl lives as long as the run.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from hgpo.config import Config, check_names
from hgpo.runs.assemble import training_suite
from hgpo.runs.folder import RunDirectory
from hgpo.runs.progress import Reporter
from hgpo.training.starting_policy import prepare_start
from hgpo.training.threads import use_threads


def prepare_start_apart(run: RunDirectory, config: Config, reporter: Reporter) -> None:
    """`hgpo.training.starting_policy.prepare_start` in another process; its errors are raised here.

    Raises:
        RuntimeError: that process was killed.
    """
    if not config.warm_start.enabled or run.start.exists():
        return
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        try:
            processes.submit(_prepare, run.path, config, reporter.console.quiet).result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                "the process of the warm start was killed, as the system does where memory runs out: try a smaller "
                "warm_start.micro_batch_tokens"
            ) from error


def _prepare(path: Path, config: Config, quiet: bool) -> None:
    check_names(config)  # in every process: a module that the recipe names may register other parts
    use_threads(config)
    prepare_start(RunDirectory(path), config, training_suite(config), Reporter(quiet=quiet))
