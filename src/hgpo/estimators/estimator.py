"""What the name of an estimator stands for: the function, and what others may know of it before it has run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from hgpo.estimators.advantages import Advantages
from hgpo.steps import StepBatch


def _none(options: Any) -> tuple[str, ...]:
    return ()


@dataclasses.dataclass(frozen=True, slots=True)
class Estimator:
    """A named estimator with its facts.

    Attributes:
        name: what users write.
        compute: (batch, gamma, options) -> `Advantages`.
        options: dataclass of the options; its defaults are the estimator's.
        label: what people read; the name unless given.
        needs: options -> the columns of `StepBatch` it cannot do without, beyond the five that every batch has.
        levels: options -> what the steps of a group have in common, one text for each of `Advantages.levels`. An
            estimator that names none is taken to have no step groups.
        untrainable: why no policy can be trained with it, in words that go on after its name ("needs …"); empty: one
            can.
        make_options: builds the options from keywords, where `options` itself does not (presets).
        extra_keywords: keywords that `make_options` takes besides the fields of `options`.
        follows_memory: whether an option `history_length` is as long as the agent's memory where a recipe says nothing.
        keywords: all options it takes, by keyword; not given, but filled in.

    Raises:
        ValueError: `options` is not a dataclass.
    """

    name: str
    compute: Callable[[StepBatch, float, Any], Advantages]
    options: type[Any]
    label: str = ""
    needs: Callable[[Any], tuple[str, ...]] = _none
    levels: Callable[[Any], tuple[str, ...]] = _none
    untrainable: str = ""
    make_options: Callable[..., Any] | None = None
    extra_keywords: tuple[str, ...] = ()
    follows_memory: bool = True
    keywords: tuple[str, ...] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Check the options' class, and fill in the label and the keywords."""
        if not (isinstance(self.options, type) and dataclasses.is_dataclass(self.options)):
            raise ValueError(f"options of estimator {self.name!r} must be a dataclass")
        object.__setattr__(self, "label", self.label or self.name)
        fields = tuple(option.name for option in dataclasses.fields(self.options))
        object.__setattr__(self, "keywords", self.extra_keywords + fields)

    @property
    def trainable(self) -> bool:
        """Whether a policy can be trained with it; `untrainable` says why not."""
        return not self.untrainable

    def parse(self, **options: Any) -> Any:
        """Build the options from keywords.

        Raises:
            ValueError: an unknown option (the message lists the valid ones) or a value out of range.
        """
        unknown = [option for option in options if option not in self.keywords]
        if unknown:
            raise ValueError(
                f"unknown option {', '.join(map(repr, unknown))} for estimator {self.name!r}; "
                f"valid: {', '.join(self.keywords)}"
            )
        return (self.make_options or self.options)(**options)

    def run(self, batch: StepBatch, gamma: float, options: Any) -> Advantages:
        """Compute, once the columns are known to be there, and name the levels.

        Raises:
            ValueError: a column that is needed and missing, or another number of levels than `levels` names.
        """
        for column in self.needs(options):
            if getattr(batch, column) is None:
                raise ValueError(f"column {column!r}: {self._asked(options)} needs it and the batch has none")
        advantages, names = self.compute(batch, gamma, options), self.levels(options)
        if not names:
            return advantages
        if len(names) != len(advantages.levels):
            raise ValueError(
                f"estimator {self.name!r} returned {len(advantages.levels)} levels and names {len(names)}: "
                f"{', '.join(names)}"
            )
        levels = zip(advantages.levels, names, strict=True)
        return dataclasses.replace(advantages, levels=tuple(dataclasses.replace(a, name=n) for a, n in levels))

    def _asked(self, options: Any) -> str:
        """The estimator in words, with the options that are not its defaults."""
        given = [(field.name, getattr(options, field.name), field.default) for field in dataclasses.fields(options)]
        changed = [f"{name}={value!r}" for name, value, default in given if value != default]
        return f"estimator {self.name!r}" + (f" with {', '.join(changed)}" if changed else "")
