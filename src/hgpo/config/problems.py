"""What is said of settings that cannot work."""

from __future__ import annotations


class ConfigError(ValueError):
    """A setting is unknown, out of range or at odds with another; the message says which and what is allowed.

    Attributes:
        setting: dotted name of the one setting that is at fault, where there is one, e.g. `"advantage.estimator"`.
    """

    def __init__(self, message: str, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting
