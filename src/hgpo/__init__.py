"""Hierarchy-of-groups policy optimisation for language-model agents.

`import hgpo` imports no third-party package: public names are imported on first use. The core needs only numpy.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hgpo.estimators import compute_advantages as compute_advantages
    from hgpo.estimators.base import Advantages as Advantages
    from hgpo.estimators.base import Level as Level
    from hgpo.steps import StepBatch as StepBatch

_HOME = {
    "Advantages": "hgpo.estimators.base",
    "Level": "hgpo.estimators.base",
    "StepBatch": "hgpo.steps",
    "compute_advantages": "hgpo.estimators",
}

__all__ = ["Advantages", "Level", "StepBatch", "compute_advantages"]


def __getattr__(name: str) -> Any:
    """Import a public name or a submodule on first use."""
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names without importing them."""
    return sorted(set(globals()) | set(__all__))
