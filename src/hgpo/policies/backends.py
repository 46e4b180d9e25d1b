"""What plays: policy backends by name (`policy.backend` in a recipe). No torch is loaded here.

A backend makes a policy of a language model. It is one file with one `Backend` in it, and one entry: here, in the
entry-point group `hgpo.policies` of any installed package, or named `"package.module:ATTRIBUTE"` in the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hgpo.plugins import Registry, check_options
from hgpo.policies.base import AnyPolicy

if TYPE_CHECKING:
    from hgpo.policies.language_model import LanguageModel


@dataclass(frozen=True, slots=True)
class Backend:
    """A way to answer prompts with a language model.

    Attributes:
        make: `(language_model, **options) -> policy`; its keywords are what `[policy.options]` may hold. A backend that
            has its own copy of the weights reads `language_model.source` and never loads `language_model.model`.
        trainable: whether its responses carry token ids and log-probs, which training needs.
        missing: what has to be installed before it can be used, and how, in a sentence; None: nothing.
        check: `(language_model, **options)`, of a backend that depends on what may not be there or not do: asks it, and
            raises a `ValueError` that says what to do. It loads no weights. Called before a training writes anything.
        adapters_only: whether it is trained through an adapter alone, beside the weights that `policy.model` has: what
            has them cannot be given others.

    Example: `Backend(lambda language_model, *, url: MyServerPolicy(url), trainable=False)`.
    """

    make: Callable[..., AnyPolicy]
    trainable: bool = True
    missing: Callable[[], str | None] = lambda: None
    check: Callable[..., None] | None = None
    adapters_only: bool = False


def _no_backend(part: Any) -> str | None:
    return None if isinstance(part, Backend) else "is no `hgpo.policies.backends.Backend`"


BACKENDS: Registry[Backend] = Registry(
    "policy backend",
    "hgpo.policies",
    {
        "transformers": "hgpo.policies.local:BACKEND",
        "vllm": "hgpo.policies.vllm:BACKEND",
        "server": "hgpo.policies.trained_server:BACKEND",
    },
    check=_no_backend,
)
"""Policy backends by name; see `hgpo.plugins`."""


def check_backend(name: str, options: Mapping[str, Any]) -> Backend:
    """The backend called `name`, which takes `options`.

    Raises:
        ValueError: there is none of that name, it is not installed, or it does not take an option.
    """
    backend = BACKENDS.get(name)
    if missing := backend.missing():
        raise ValueError(f"policy backend {name!r}: {missing}")
    check_options(f"policy backend {name!r}", backend.make, options)
    return backend


def make_policy(name: str, language_model: LanguageModel, options: Mapping[str, Any] | None = None) -> AnyPolicy:
    """A policy that answers with `language_model` through the backend called `name`.

    Raises:
        ValueError: see `check_backend`; or the backend's own.
    """
    options = dict(options or {})
    return check_backend(name, options).make(language_model, **options)
