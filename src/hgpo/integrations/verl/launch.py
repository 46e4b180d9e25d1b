"""The warm start in a process of its own: what it held of a GPU is free again before verl asks for all of it.

A process keeps its CUDA context and what PyTorch's allocator has cached for as long as it lives, and the one that
starts a run on verl lives as long as the run.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hgpo.assemble import prepare_start, record_environment, run_policies, training_suite
from hgpo.config import Config, ConfigError, check_names
from hgpo.config.loading import as_tree
from hgpo.envs.wrappers import LimitedSuite
from hgpo.integrations.verl.checkpoints import claim, claim_empty, release
from hgpo.integrations.verl.config import (
    LOCATION_FILE,
    check_for_verl,
    checkpoint_folder,
    leaves,
    mapped_settings,
    on_cpu,
    ranks_of,
    suggested_settings,
    vllm_on_cpu,
)
from hgpo.integrations.verl.cpu.vllm import vllm_environment
from hgpo.integrations.verl.preflight import (
    check_cluster,
    check_here,
    installed_version,
    look,
    ray_needs,
    reject_or_note,
    require_verl,
)
from hgpo.integrations.verl.verl_owned_settings import refuse_second_say
from hgpo.integrations.verl.watchdog import PATIENCE, Watchdog, look_at_ray
from hgpo.runs.folder import (
    RunDirectory,
    create_run_directory,
    exclusive,
    open_run_directory,
    remove_leftovers,
    write_json,
)
from hgpo.runs.trackers import check_trackers, tracker_variables
from hgpo.training.load import check_model, use_threads
from hgpo.training.memory import summarise_model
from hgpo.training.run_plan import plan_lines
from hgpo.utils.progress import Reporter


def prepare_start_apart(run: RunDirectory, config: Config, reporter: Reporter) -> None:
    """`hgpo.training.start_policy.prepare_start` in another process; its errors are raised here.

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
    use_threads(config.run.threads)
    suite = training_suite(config.environment, config.evaluation, config.warm_start)
    prepare_start(RunDirectory(path), config, suite, Reporter(quiet=quiet))


# verl's own configuration, composed by Hydra with verl's own classes, from a recipe. Needs verl, no Ray, no GPU.


# Tables that verl hands on as they are, so that any name may stand in them.
_OPEN_TABLES = {
    "apply_chat_template_kwargs",
    "engine_kwargs",
    "mixed_precision",
    "override_config",
    "override_optimizer_config",
    "ray_init",
}
_LEFT_OUT = {"actor_rollout_ref.actor.checkpoint.save_lora_only"}  # verl's classes take it, its files do not name it
_REFUSALS = (AssertionError, NotImplementedError, ValueError, TypeError, KeyError, AttributeError)
RECIPE_KEY = "hgpo"


def compose(config: Config, *, model: str, run_directory: Path) -> Any:
    """The complete, validated `DictConfig` of the run; `RECIPE_KEY` in it holds the recipe for the workers.

    Args:
        config: the recipe.
        model: folder or hub name of the start policy.
        run_directory: where the run writes.

    Raises:
        ConfigError: names the setting that is unknown to verl, said twice, or refused by one of verl's checks; or a
            tracker that is not there.
    """
    require_verl()
    check_for_verl(config)
    check_trackers(config.tracking, config.run.engine)
    from omegaconf import OmegaConf

    verl_config = _defaults()
    for name, value in leaves(suggested_settings(config)):
        _set(verl_config, name, value)
    mapped = mapped_settings(config, model, run_directory)
    for name, value in leaves(config.verl.overrides):
        refuse_second_say(name, dict(leaves(mapped)), config)
        _set(verl_config, name, value)
    for name, value in leaves(mapped):
        _set(verl_config, name, value)
    recipe = {"settings": as_tree(config), "run_directory": str(run_directory)}
    OmegaConf.update(verl_config, RECIPE_KEY, recipe, force_add=True)
    _validate(verl_config)
    return verl_config


def recipe_of(verl_config: Any) -> tuple[Config, Path]:
    """The recipe and the run directory that `compose` put into verl's configuration.

    Raises:
        ConfigError: the configuration is not of `compose`.
    """
    from omegaconf import OmegaConf

    if RECIPE_KEY not in verl_config:
        raise ConfigError(
            f"verl's configuration has no `{RECIPE_KEY}`: start the run with `hgpo train RECIPE.toml --engine verl`"
        )
    stored: dict[str, Any] = OmegaConf.to_container(verl_config[RECIPE_KEY], resolve=False)
    config = Config.model_validate(stored["settings"])
    check_names(config)  # in every process: a module that the recipe names may register other parts
    return config, Path(stored["run_directory"])


def _defaults() -> Any:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    GlobalHydra.instance().clear()
    folder = str(files("verl").joinpath("trainer", "config"))
    with initialize_config_dir(config_dir=folder, version_base=None):
        verl_config = hydra_compose(config_name="ppo_trainer")
    OmegaConf.set_struct(verl_config, True)
    return verl_config


def _set(verl_config: Any, name: str, value: Any) -> None:
    from omegaconf import OmegaConf, open_dict
    from omegaconf.errors import OmegaConfBaseException

    parts = name.split(".")
    table = next((index for index, part in enumerate(parts) if part in _OPEN_TABLES), None)
    try:
        if table is None:
            OmegaConf.update(verl_config, name, value, force_add=name in _LEFT_OUT)
            return
        holder = OmegaConf.select(verl_config, ".".join(parts[:table]), throw_on_missing=True)
        with open_dict(holder):
            if holder.get(parts[table]) is None:
                holder[parts[table]] = {}
            OmegaConf.update(holder, ".".join(parts[table:]), value, force_add=True)
    except (OmegaConfBaseException, AttributeError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"verl.overrides.{name}: verl does not take this setting ({reason})") from error


def _validate(verl_config: Any) -> None:
    """verl's checks, and its classes for every part that can be built without a model at hand."""
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it reports success by printing
            OmegaConf.to_container(verl_config, resolve=True)
            validate_config(
                config=_without_vllm(verl_config),
                use_reference_policy=need_reference_policy(verl_config),
                use_critic=need_critic(verl_config),
            )
            for part in (verl_config.actor_rollout_ref.rollout, verl_config.algorithm):
                omega_conf_to_dataclass(part)
    except _REFUSALS as error:
        raise ConfigError(f"verl refuses these settings: {error}") from error
    except (HydraException, OmegaConfBaseException) as error:  # hydra wraps what a class of verl's raised
        raise ConfigError(f"verl refuses these settings: {error.__cause__ or error}") from error


def _without_vllm(verl_config: Any) -> Any:
    """For checks on a machine that only composes: verl's check of the adapter's rank imports vLLM."""
    if installed_version("vllm") is not None:
        return verl_config
    checked = copy.deepcopy(verl_config)
    checked.actor_rollout_ref.model.lora_rank = 0
    return checked


# Starts a run on verl: settings are checked before Ray starts, the cluster before anything is loaded on it.


logger = logging.getLogger(__name__)

PLUGIN = "hgpo.integrations.verl.plugin"
# Handed to the workers of a cluster that was not started here, and so does not know this shell's environment. Nothing
# secret may stand here: Ray writes these into its logs, in clear text.
FORWARDED = (
    "ALFWORLD_DATA",
    "CHECKPOINTS_DIR",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "OMP_NUM_THREADS",
    "PYTHONPATH",
    "WANDB_DIR",
    "WANDB_MODE",
)
_RAY_ATTEMPTS = 3
_TOO_SLOW = "timed out during startup"


def composed_yaml(config: Config) -> str:
    """verl's complete settings for this recipe, for `--dry-run`."""
    from omegaconf import OmegaConf

    return str(OmegaConf.to_yaml(composed(config), resolve=True))


def composed(config: Config) -> Any:
    """verl's complete settings for this recipe, where it is not to be run."""
    return _composed(config, RunDirectory(config.run_directory.resolve()))


def train(config: Config, reporter: Reporter) -> RunDirectory:
    """A new run. `ConfigError` before anything is written where the settings cannot work."""
    run = RunDirectory(config.run_directory.resolve())
    check_machine(config, _composed(config, run), reporter)
    announce(config, reporter)
    suite = training_suite(config.environment, config.evaluation, config.warm_start)
    checkpoints = checkpoint_folder(config, run.path)
    begun = run.config.exists()  # then it is refused below, with a remedy of its own
    claimed = not begun and _shared(checkpoints, run) and claim_empty(checkpoints, run.path)
    try:
        create_run_directory(config)
    except BaseException:
        if claimed:
            release(checkpoints)
        raise
    with exclusive(run.path):
        write_json(run.path / LOCATION_FILE, {"checkpoints": str(checkpoints)})
        return _run(run, config, suite, reporter)


def resume(path: Path, reporter: Reporter) -> RunDirectory:
    """Continue the run in `path` from its newest checkpoint. A complete run is left as it is."""
    run, config = open_run_directory(path.resolve())
    if run.complete:
        return run
    check_names(config)
    checkpoints = checkpoint_folder(config, run.path)
    check_machine(config, _composed(config, run), reporter)
    if _shared(checkpoints, run):
        claim(checkpoints, run.path)
    with exclusive(run.path):
        suite = training_suite(config.environment, config.evaluation, config.warm_start)
        return _run(run, config, suite, reporter)


def announce(config: Config, reporter: Reporter) -> None:
    """Print model, plan, and notes on settings that do not suit the model.

    Raises:
        ConfigError: there is no such model.
    """
    check_model(config.policy)
    for line in plan_lines(config, summarise_model(config.policy).parameters, _where(config)):
        reporter.say(line)


def _where(config: Config) -> str:
    """Where verl trains: "on verl with 8 GPUs on 2 nodes"."""
    ranks, nodes = ranks_of(config), config.verl.nodes
    kind = "process" + "es" * (ranks > 1) + " without a GPU" if on_cpu(config) else "GPU" + "s" * (ranks > 1)
    return f"on verl with {ranks} {kind}" + (f" on {nodes} nodes" if nodes > 1 else "")


def check_machine(config: Config, verl_config: Any, reporter: Reporter) -> None:
    """Reject what would fail or hang on this machine; a cluster that is joined is checked once it is connected."""
    if not config.verl.ray_address:
        reject_or_note(check_here(config, verl_config, look()), reporter.say)


def _shared(checkpoints: Path, run: RunDirectory) -> bool:
    """Whether other runs could have the same folder: not where it is inside of this one's."""
    return not checkpoints.is_relative_to(run.path)


def _run(run: RunDirectory, config: Config, suite: LimitedSuite, reporter: Reporter) -> RunDirectory:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    use_threads(config.run.threads)  # of this process; the others are told by `OMP_NUM_THREADS`
    remove_leftovers(run)
    record_environment(run, config.environment.name, suite)
    if on_cpu(config):
        prepare_start(run, config, suite, reporter)
    else:
        prepare_start_apart(run, config, reporter)
    verl_config = _composed(config, run)
    began = time.monotonic()
    try:
        _start_ray(config, verl_config, quiet=reporter.console.quiet)
        reject_or_note(check_cluster(config, verl_config), reporter.say)
        reporter.say(f"Ray is up after {time.monotonic() - began:.0f} s; verl starts its workers")
        from verl.trainer.main_ppo import TaskRunnerV1, run_ppo

        # The run's files are written where this command was given.
        here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
        patience = PATIENCE if config.verl.nodes > 1 else 0
        with Watchdog(run.path, look_at_ray, patience=patience) as watchdog:
            runner = TaskRunnerV1.options(scheduling_strategy=here)
            run_ppo(verl_config, task_runner_class=WithSecrets(runner, watchdog))
    finally:
        ray.shutdown()
    return run


class WithSecrets:
    """A Ray actor class whose actors have the trackers' variables in their environment; the watchdog may kill them."""

    def __init__(self, actor_class: Any, watchdog: Watchdog) -> None:
        self._actor_class, self._watchdog = actor_class, watchdog

    def remote(self) -> Any:
        """Start the actor."""
        import ray

        actor = self._actor_class.remote()
        self._watchdog.ends(lambda: ray.kill(actor))
        secrets = tracker_variables()  # as an argument of the one process that needs them, which Ray does not log
        ray.get(actor.__ray_call__.remote(_set_secrets, secrets))
        return actor


def _set_secrets(_: Any, secrets: dict[str, str]) -> None:
    os.environ.update(secrets)


def _composed(config: Config, run: RunDirectory) -> Any:
    require_verl()
    _set_environment(config)
    from hgpo.integrations.verl.launch import compose

    return compose(config, model=run_policies(run, config).start_source(), run_directory=run.path)


def _set_environment(config: Config) -> None:
    """verl reads these when it is imported, here and in every worker that is started from here."""
    os.environ["VERL_USE_EXTERNAL_MODULES"] = PLUGIN
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if config.run.threads:
        os.environ["OMP_NUM_THREADS"] = str(config.run.threads)
    # TransferQueue asks for 8 threads at every message, and warns each time where there are fewer cores.
    os.environ.setdefault("TQ_NUM_THREADS", str(min(8, config.run.threads or os.cpu_count() or 1)))
    if on_cpu(config):
        os.environ["VERL_PLATFORM"] = "cpu"
    if vllm_on_cpu(config):
        os.environ |= {name: value for name, value in vllm_environment().items() if name not in os.environ}


def _start_ray(config: Config, verl_config: Any, *, quiet: bool) -> None:
    import ray
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    runtime_env = get_ppo_ray_runtime_env()
    forwarded = FORWARDED if config.verl.ray_address else ()
    runtime_env["env_vars"] |= {name: os.environ[name] for name in forwarded if name in os.environ}
    runtime_env["env_vars"] |= {"VERL_USE_EXTERNAL_MODULES": PLUGIN, "TRANSFER_QUEUE_ENABLE": "1"}
    if on_cpu(config):
        runtime_env["env_vars"]["VERL_PLATFORM"] = "cpu"
    options: dict[str, Any] = {"runtime_env": runtime_env, "log_to_driver": not quiet}
    if config.verl.ray_address:
        options["address"] = config.verl.ray_address
    else:
        cpus = config.verl.ray_cpus or max(os.cpu_count() or 1, ray_needs(verl_config).cpus)
        # "local", or Ray would join any cluster that it finds on this machine.
        options |= {"address": "local", "include_dashboard": False, "num_cpus": cpus}
        if on_cpu(config):
            options["num_gpus"] = ranks_of(config)  # a place per training process; no GPU is meant
    where = f"the cluster at {config.verl.ray_address}" if config.verl.ray_address else "Ray on this machine"
    for _ in range(_RAY_ATTEMPTS):
        try:
            ray.init(**options)
            return
        except (ConnectionError, RuntimeError) as error:
            raise ConfigError(f"cannot start or reach {where}: {error}") from error
        except Exception as error:
            if _TOO_SLOW not in str(error):  # Ray raises nothing more special for it
                raise
            logger.warning("Ray gave its own processes 30 seconds to start, and they needed more; once more")
            ray.shutdown()
    raise ConfigError(f"cannot start {where}: it was too slow {_RAY_ATTEMPTS} times; try again when less runs here")
