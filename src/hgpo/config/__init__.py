"""One typed tree of settings (`settings`), read from recipes and overrides (`loading`), its names checked (`names`)."""

from hgpo.config.loading import (
    apply_override,
    as_tree,
    describe_settings,
    dump_config,
    load_config,
    read_config,
    read_toml,
)
from hgpo.config.names import check_names
from hgpo.config.problems import ConfigError
from hgpo.config.settings import Config, TrainingSettings, WarmStartSettings

__all__ = [
    "Config",
    "ConfigError",
    "TrainingSettings",
    "WarmStartSettings",
    "apply_override",
    "as_tree",
    "check_names",
    "describe_settings",
    "dump_config",
    "load_config",
    "read_config",
    "read_toml",
]
