"""Is there a verl that this integration was written for? Asked without importing it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from hgpo.config import ConfigError

LOWEST, BELOW = (0, 9, 1), (0, 10)
NEEDED = "verl>=0.9.1,<0.10"


def require_verl() -> str:
    """The installed version of verl.

    verl's internals move between minor versions, so a newer one is refused instead of failing hours later.

    Raises:
        ConfigError: verl or what it needs is missing or another version; the message says what to install.
    """
    installed = installed_version("verl")
    if installed is None:
        raise ConfigError(f"--engine verl needs {NEEDED}, which is not installed: pip install 'hgpo[verl]'")
    if not LOWEST <= _numbers(installed) < BELOW:
        raise ConfigError(f"--engine verl needs {NEEDED}, but verl {installed} is installed: pip install '{NEEDED}'")
    for package in ("ray", "TransferQueue"):
        if installed_version(package) is None:
            raise ConfigError(f"--engine verl needs {package}, which is not installed: pip install 'hgpo[verl]'")
    return installed


def installed_version(package: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    """`0.9.1.dev3` as (0, 9, 1): the leading numbers alone."""
    numbers = []
    for part in text.split("+")[0].split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
