"""One typed tree of settings (`settings`), read from recipes and overrides (`recipes`, `loading`), then checked."""

from hgpo.config.checks import check_names
from hgpo.config.loading import as_tree, describe_settings, dump_config, load_config, read_config, setting_values
from hgpo.config.recipes import apply_override
from hgpo.config.settings import (
    VLLM_ON_CPU,
    AdvantageSettings,
    AgentSettings,
    Config,
    ConfigError,
    EnvironmentSettings,
    EvaluationSettings,
    LoraSettings,
    Loss,
    LossAggregation,
    PolicySettings,
    RolloutSettings,
    TrackingSettings,
    TrainingSettings,
    WarmStartSettings,
)

__all__ = [
    "VLLM_ON_CPU",
    "AdvantageSettings",
    "AgentSettings",
    "Config",
    "ConfigError",
    "EnvironmentSettings",
    "EvaluationSettings",
    "LoraSettings",
    "Loss",
    "LossAggregation",
    "PolicySettings",
    "RolloutSettings",
    "TrackingSettings",
    "TrainingSettings",
    "WarmStartSettings",
    "apply_override",
    "as_tree",
    "check_names",
    "describe_settings",
    "dump_config",
    "load_config",
    "read_config",
    "setting_values",
]
