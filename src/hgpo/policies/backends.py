"""Policy backends by name (`policy.backend` in a recipe). This module does not import torch.

A backend makes a policy from a language model. It is one `Backend`, registered in `BACKENDS`, in the entry-point group
`hgpo.policies` of an installed package, or named `"package.module:ATTRIBUTE"` in the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hgpo.options import converted_options
from hgpo.plugins import Registry
from hgpo.policies.base import AnyPolicy

if TYPE_CHECKING:
    from hgpo.policies.language_model import LanguageModel

AUTO = "auto"
"""`policy.backend` that depends on the device; see `hgpo.training.load.choose_sampler`."""
DEFAULT = "transformers"


@dataclass(frozen=True, slots=True)
class Backend:
    """A way to answer prompts with a language model.

    Attributes:
        make: `(language_model, **options) -> policy`; its keywords are the keys of `[policy.options]`. A backend with
            its own copy of the weights may read `language_model.source` instead of loading `language_model.model`.
        trainable: whether its responses have token ids and log-probs, which training needs.
        missing: returns a sentence about a package to install, or None if nothing is missing.
        check: `(language_model, **options)`; tests the external service and raises a `ValueError` with a remedy. Loads
            no weights. Called before training writes files.
        adapters_only: whether only an adapter can be trained, because the backend cannot replace whole weights.
    """

    make: Callable[..., AnyPolicy]
    trainable: bool = True
    missing: Callable[[], str | None] = lambda: None
    check: Callable[..., None] | None = None
    adapters_only: bool = False


BACKENDS: Registry[Backend] = Registry(
    "policy backend",
    "hgpo.policies",
    {
        "transformers": "hgpo.policies.local:BACKEND",
        "vllm": "hgpo.policies.vllm:BACKEND",
        "server": "hgpo.policies.trained_server:BACKEND",
    },
    check=lambda part: None if isinstance(part, Backend) else "is not a `hgpo.policies.backends.Backend`",
)
"""Policy backends by name; see `hgpo.plugins`."""


def check_backend(name: str, options: Mapping[str, Any]) -> tuple[Backend, dict[str, Any]]:
    """The backend called `name`, and its options with values of the declared types.

    Raises:
        ValueError: an unknown name, a package is missing, or an option is unknown or has another type.
    """
    backend = BACKENDS.get(name)
    if missing := backend.missing():
        raise ValueError(f"policy backend {name!r}: {missing}")
    return backend, converted_options(f"policy backend {name!r}", backend.make, options, given=1)


def make_policy(name: str, language_model: LanguageModel, options: Mapping[str, Any] | None = None) -> AnyPolicy:
    """A policy that answers with `language_model` through the backend called `name`.

    Raises:
        ValueError: as `check_backend`, or the backend rejects the model or an option's value.
    """
    backend, converted = check_backend(name, options or {})
    return backend.make(language_model, **converted)
