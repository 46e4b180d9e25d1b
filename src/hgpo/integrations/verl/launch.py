"""Starts a run on verl: composes verl's settings, checks machine and cluster, makes the start policy, runs verl.

Settings are checked before Ray starts, and the cluster before a model is loaded. Hydra composes verl's configuration
from verl's own files. The warm start runs in a separate process, which frees a GPU's memory when it ends.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import os
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hgpo.assemble import prepare_start, training_suite
from hgpo.config import Config, ConfigError, check_names
from hgpo.config.loading import as_tree
from hgpo.config.settings import PolicySettings, VerlSettings
from hgpo.integrations.verl import verl_api
from hgpo.integrations.verl.checkpoints import require_newest
from hgpo.integrations.verl.config import (
    check_for_verl,
    dotted_values,
    mapped_settings,
    on_cpu,
    reject_owned,
    suggested_settings,
    vllm_environment,
    vllm_on_cpu,
)
from hgpo.integrations.verl.mode import check_mode, mode_settings, suggested_for_mode
from hgpo.integrations.verl.preflight import (
    RayNeeds,
    check_cluster,
    check_here,
    inspect_machine,
    installed_version,
    reject_or_note,
    require_verl,
)
from hgpo.integrations.verl.watchdog import PATIENCE, Watchdog, look_at_ray
from hgpo.runs.checkpoints import recover
from hgpo.runs.folder import RunDirectory, exclusive, new_run, open_run_directory
from hgpo.runs.trackers import check_trackers, tracker_variables
from hgpo.training.load import RunPolicies, check_model, use_threads
from hgpo.training.run_plan import plan_lines, summarise_model
from hgpo.utils.progress import Reporter
from hgpo.utils.text import counted

logger = logging.getLogger(__name__)

RECIPE_KEY = "hgpo"
# verl imports these modules in every process of a run (`VERL_USE_EXTERNAL_MODULES`), and they register with verl. An
# error in one of them stops the process; a failing entry point of `verl.plugins` would only be skipped. On a CPU, "cpu"
# comes first, since verl's modules read the platform at their import.
_MODULES = ("engine", "head", "trainers")
# Environment variables for the workers of a cluster that the command did not start. Ray logs them, so never list
# secrets here.
FORWARDED = (
    "ALFWORLD_DATA",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "OMP_NUM_THREADS",
    "PYTHONPATH",
    "VLLM_CACHE_ROOT",
    "WANDB_DIR",
    "WANDB_MODE",
    "WEBSHOP_DATA",
)
_NO_COMPILE_CACHE = "VLLM_DISABLE_COMPILE_CACHE"
_OF_VERL = ("VERL_USE_EXTERNAL_MODULES", "VERL_PLATFORM", _NO_COMPILE_CACHE)
_RAY_ATTEMPTS = 3
_TOO_SLOW = "timed out during startup"
_REJECTIONS = (AssertionError, NotImplementedError, ValueError, TypeError, KeyError, AttributeError)


# ---- a run ---------------------------------------------------------------------------------------------------------


def train(config: Config, reporter: Reporter) -> RunDirectory:
    """Carry out a new run.

    Raises:
        ConfigError: the settings cannot work; nothing is written.
    """
    run = RunDirectory(config.run_directory.resolve())
    verl_config = compose(config)
    check_model(config.policy)
    _check_machine(verl_config, config.policy, config.verl, reporter)
    where = training_processes(config.policy, config.verl)
    for line in plan_lines(config, summarise_model(config.policy).parameters, where):
        reporter.say(line)
    # Rejects settings that the tasks do not fit.
    training_suite(config.environment, config.evaluation, config.warm_start)
    with new_run(config):
        return _run(run, config, verl_config, reporter)


def resume(path: Path, reporter: Reporter) -> RunDirectory:
    """Continue the run in `path` from its newest checkpoint."""
    run, config = open_run_directory(path.resolve())
    check_names(config)
    verl_config = compose(config, run_directory=run.path)
    _check_machine(verl_config, config.policy, config.verl, reporter)
    with exclusive(run.path):
        return _run(run, config, verl_config, reporter)


def _check_machine(verl_config: Any, policy: PolicySettings, verl: VerlSettings, reporter: Reporter) -> None:
    if not verl.ray_address:
        reject_or_note(check_here(verl_config, inspect_machine(), policy), reporter.say)


def training_processes(policy: PolicySettings, verl: VerlSettings) -> str:
    """What trains, for messages: "on verl with 8 GPUs on 2 nodes"."""
    ranks = verl.nodes * verl.gpus_per_node
    nouns = ("process without a GPU", "processes without a GPU") if on_cpu(policy) else ("GPU", "GPUs")
    return f"on verl with {counted(ranks, *nouns)}" + (f" on {verl.nodes} nodes" if verl.nodes > 1 else "")


def _run(run: RunDirectory, config: Config, verl_config: Any, reporter: Reporter) -> RunDirectory:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    recover(run.checkpoints)
    require_newest(run.path / "verl", run.checkpoints, config.training.updates)
    began = time.monotonic()
    try:
        _start_ray(config.verl, verl_config, quiet=reporter.console.quiet)
        reject_or_note(check_cluster(verl_config, config.policy), reporter.say)
        reporter.say(f"Ray is up after {time.monotonic() - began:.0f} s")
        if config.warm_start.enabled and not run.start.exists():
            prepare_start_apart(run, quiet=reporter.console.quiet)
        reporter.say("verl starts its workers")
        # The trainer writes the run's files, so it has to run on the node of this command.
        here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
        patience = PATIENCE if config.verl.nodes > 1 else 0
        with Watchdog(run.path, look_at_ray, patience=patience) as watchdog:
            runner = verl_api.TaskRunnerV1.options(scheduling_strategy=here)
            verl_api.run_ppo(verl_config, task_runner_class=WithSecrets(runner, watchdog))
    finally:
        ray.shutdown()
    return run


def prepare_start_apart(run: RunDirectory, *, quiet: bool) -> None:
    """Run `hgpo.assemble.prepare_start` in another process, which reads the run's settings. Its errors are raised here.

    Raises:
        RuntimeError: that process was killed.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        try:
            processes.submit(_prepare, run.path, quiet).result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                "the process of the warm start was killed, probably because memory ran out: try a smaller "
                "warm_start.micro_batch_tokens"
            ) from error


def _prepare(path: Path, quiet: bool) -> None:
    run, config = open_run_directory(path)
    check_names(config)  # imports the modules that the recipe names
    use_threads(config.run.threads)
    suite = training_suite(config.environment, config.evaluation, config.warm_start)
    prepare_start(run, config, suite, Reporter(quiet=quiet))


class WithSecrets:
    """Wraps a Ray actor class: its actors get the trackers' environment variables, and the watchdog can kill them."""

    def __init__(self, actor_class: Any, watchdog: Watchdog) -> None:
        self._actor_class, self._watchdog = actor_class, watchdog

    def remote(self) -> Any:
        """Start the actor."""
        import ray

        actor = self._actor_class.remote()
        self._watchdog.ends(lambda: ray.kill(actor))
        secrets = tracker_variables()  # passed as an argument, which Ray does not log
        ray.get(actor.__ray_call__.remote(lambda _, variables: os.environ.update(variables), secrets))
        return actor


def _set_environment(policy: PolicySettings, verl: VerlSettings, threads: int | None) -> None:
    """Set environment variables that verl reads at its import, for this process and the workers that it starts."""
    modules = (*(["cpu"] if on_cpu(policy) else []), *_MODULES)
    os.environ["VERL_USE_EXTERNAL_MODULES"] = ",".join(f"hgpo.integrations.verl.{name}" for name in modules)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    # TransferQueue's default is 8 threads; with fewer cores it prints a warning at every message.
    os.environ.setdefault("TQ_NUM_THREADS", str(min(8, threads or os.cpu_count() or 1)))
    if on_cpu(policy):
        os.environ["VERL_PLATFORM"] = "cpu"
        # Older versions of Ray hide all GPUs from processes that request none.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    elif verl.rollout == "vllm":
        # verl disables the cache of compiled graphs, since processes that start together could write broken files
        # (vllm-project/vllm issue 24601). Since 2.10, PyTorch writes them atomically (pytorch/pytorch 162432).
        os.environ.setdefault(_NO_COMPILE_CACHE, "0")
    if vllm_on_cpu(policy, verl):
        os.environ |= {name: value for name, value in vllm_environment().items() if name not in os.environ}


def _start_ray(verl: VerlSettings, verl_config: Any, *, quiet: bool) -> None:
    import ray

    cpu, needs = verl_config["trainer"]["device"] == "cpu", RayNeeds.of(verl_config)
    runtime_env = verl_api.get_ppo_ray_runtime_env()
    names = (*_OF_VERL, *(FORWARDED if verl.ray_address else ()))
    runtime_env["env_vars"] |= {name: os.environ[name] for name in names if name in os.environ}
    runtime_env["env_vars"]["TRANSFER_QUEUE_ENABLE"] = "1"
    options: dict[str, Any] = {"runtime_env": runtime_env, "log_to_driver": not quiet}
    if verl.ray_address:
        options["address"] = verl.ray_address
    else:
        cpus = verl.ray_cpus or max(os.cpu_count() or 1, needs.cpus)
        # Without "local", Ray joins a cluster that already runs on this machine.
        options |= {"address": "local", "include_dashboard": False, "num_cpus": cpus}
        if cpu:
            options["num_gpus"] = needs.gpus  # one logical GPU for each process that trains or only samples
    where = f"the cluster at {verl.ray_address}" if verl.ray_address else "Ray on this machine"
    for _ in range(_RAY_ATTEMPTS):
        try:
            ray.init(**options)
            return
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(f"cannot start or reach {where}: {error}") from error
        except Exception as error:
            if _TOO_SLOW not in str(error):  # Ray has no class for this error
                raise
            logger.warning("Ray's processes did not start within 30 seconds; starting them again")
            ray.shutdown()
    raise ConfigError(
        f"cannot start {where}: it was too slow {_RAY_ATTEMPTS} times; try again when the machine is less busy"
    )


# ---- verl's configuration ------------------------------------------------------------------------------------------


def compose(config: Config, *, run_directory: Path | None = None) -> Any:
    """The complete, validated `DictConfig` of the run; its table `RECIPE_KEY` is the recipe, for the workers.

    `run_directory` replaces the recipe's folder of the run.

    Raises:
        ConfigError: verl does not have or rejects a setting, an override contradicts the recipe, or a tracker is not
            available.
    """
    installed = require_verl()
    policy, training, verl = config.policy, config.training, config.verl
    check_for_verl(config)
    check_mode(policy, training, verl)
    check_trackers(config.tracking, config.run.engine)
    _set_environment(policy, verl, config.run.threads)
    from omegaconf import OmegaConf

    run = RunDirectory(run_directory or config.run_directory.resolve())
    planned = config.warm_start.enabled and not run.start.exists()  # a new run is checked before its warm start
    policies = RunPolicies(run, policy, config.warm_start.enabled, config.run.seed)
    model = str(run.start) if planned else policies.start_source()
    if Path(model).is_dir():  # Ray's processes may run in other folders
        model = str(Path(model).resolve())
    suggested = suggested_settings(config) | suggested_for_mode(verl, policy)
    mapped = mapped_settings(config, model, run.path)
    mapped |= mode_settings(verl, policy, config.rollout.tasks_per_update)
    overrides = dict(dotted_values(verl.overrides))
    for name in overrides:
        reject_owned(name, mapped, recomputes_log_probs=config.recomputes_log_probs)
    verl_config = verl_api.default_settings()
    if unknown := verl_api.unknown_settings(verl_config, overrides):
        raise ConfigError(f"verl.overrides: verl {installed} has no settings {', '.join(unknown)}")
    if unknown := verl_api.unknown_settings(verl_config, [*verl_api.READ_SETTINGS, *suggested, *mapped]):
        raise ConfigError(
            f"verl {installed} has no settings {', '.join(unknown)}; hgpo supports {verl_api.SUPPORTED}: pip install "
            f"{verl_api.TESTED}"
        )
    for name, value in {**suggested, **overrides, **{name: one.value for name, one in mapped.items()}}.items():
        OmegaConf.update(verl_config, name, value, force_add=True)
    settings = json.dumps(as_tree(config)).replace("$", "\\u0024")  # OmegaConf would replace ${…} in texts
    recipe = {"settings": settings, "run_directory": str(run.path)}
    OmegaConf.update(verl_config, RECIPE_KEY, recipe, force_add=True)
    _validate(verl_config)
    return verl_config


def recipe_of(verl_config: Any) -> tuple[Config, Path]:
    """The recipe and the run directory in a configuration of `compose`. Imports the modules that the recipe names.

    Raises:
        ConfigError: `compose` did not make the configuration.
    """
    from omegaconf import OmegaConf

    if RECIPE_KEY not in verl_config:
        raise ConfigError(
            f"verl's configuration has no `{RECIPE_KEY}`: start the run with `hgpo train RECIPE.toml --engine verl`"
        )
    stored: dict[str, Any] = OmegaConf.to_container(verl_config[RECIPE_KEY], resolve=False)
    config = Config.model_validate_json(stored["settings"])
    check_names(config)
    return config, Path(stored["run_directory"])


def _validate(verl_config: Any) -> None:
    """Run verl's checks, and create verl's configuration objects that need no model."""
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    checked = verl_config
    if installed_version("vllm") is None:  # verl's check of the adapter's rank imports vLLM
        checked = copy.deepcopy(verl_config)
        checked.actor_rollout_ref.model.lora_rank = 0
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # verl prints when its checks pass
            OmegaConf.to_container(verl_config, resolve=True)
            verl_api.validate_config(
                config=checked,
                use_reference_policy=verl_api.need_reference_policy(verl_config),
                use_critic=False,  # its class reads the model, which the warm start has not made yet
            )
            critic = copy.deepcopy(verl_config.critic)
            critic.model = None
            for part in (verl_config.actor_rollout_ref.rollout, verl_config.algorithm, critic):
                verl_api.omega_conf_to_dataclass(part)
    except _REJECTIONS as error:
        raise ConfigError(f"verl refuses these settings: {error}") from error
    except (HydraException, OmegaConfBaseException) as error:  # Hydra wraps errors of verl's classes
        raise ConfigError(f"verl refuses these settings: {error.__cause__ or error}") from error
