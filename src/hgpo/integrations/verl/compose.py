"""verl's own configuration, composed by Hydra with verl's own classes, from a recipe. Needs verl, no Ray, no GPU."""

from __future__ import annotations

import contextlib
import copy
import io
from importlib.resources import files
from pathlib import Path
from typing import Any

from hgpo.config import Config, ConfigError, check_names
from hgpo.config.loading import as_tree
from hgpo.integrations.verl.mapping import check_for_verl, leaves, mapped_settings, suggested_settings
from hgpo.integrations.verl.preflight import installed_version, require_verl
from hgpo.integrations.verl.settled import refuse_second_say
from hgpo.runs.tracking import check_trackers

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
    check_trackers(config)
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
