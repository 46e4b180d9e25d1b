"""What is said of settings that cannot work."""


class ConfigError(ValueError):
    """A setting is unknown, out of range or at odds with another; the message says which and what is allowed."""
