"""Options of the parts that a recipe names, such as agents and environments: their names and the types of their values.

An option is a keyword of the function or class that makes the part.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import UnionType
from typing import Any, Union, get_origin, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model


def converted_options(
    what: str, make: Callable[..., Any], options: Mapping[str, Any], *, given: int = 0
) -> dict[str, Any]:
    """Check options against the parameters of `make`, and convert their values to its types, such as a list to a tuple.

    Args:
        what: Subject of the error message, such as "agent 'react'".
        make: The function that receives the options. Without types that can be read, values are not converted.
        options: The given options.
        given: Number of its first parameters that are not options.

    Raises:
        ValueError: An option is unknown (the message lists the known ones), a required one is missing, or a value has
            another type.
    """
    parameters = list(inspect.signature(make).parameters.values())[given:]
    taken = {one.name: one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    if not takes_any and (unknown := sorted(set(options) - set(taken))):
        raise ValueError(f"{what} has no option {', '.join(unknown)}; it takes {', '.join(taken) or 'none'}")
    if missing := [name for name, one in taken.items() if one.default is one.empty and name not in options]:
        raise ValueError(f"{what} needs the option{'s' * (len(missing) > 1)} {', '.join(missing)}")
    declared = make.func if isinstance(make, partial) else make
    try:
        types = get_type_hints(declared.__init__ if inspect.isclass(declared) else declared, include_extras=True)
    except (NameError, TypeError):  # names that only a type checker imports
        return dict(options)
    return {name: converted_option(f"{what}: {name}", value, types.get(name, Any)) for name, value in options.items()}


def converted_option(name: str, value: object, kind: Any) -> Any:
    """Convert a recipe's value to the type `kind` by pydantic's rules: a list to a tuple, a table to a dataclass.

    Raises:
        ValueError: The value cannot be converted; the message has `name`, the value and the reasons.
    """
    holder: Any = create_model("Option", __config__=ConfigDict(arbitrary_types_allowed=True), value=(kind, ...))
    try:
        converted = vars(holder(value=value))["value"]
    except ValidationError as error:
        union = get_origin(kind) in (Union, UnionType)  # then an error's location is the name of a type
        found = [
            (() if union else problem["loc"][1:], problem["msg"].removeprefix("Value error, "))
            for problem in error.errors()
        ]
        reasons = [f"{'.'.join(map(str, place))}: {reason}" if place else reason for place, reason in found]
        raise ValueError(f"{name} = {value!r}: {'; or '.join(dict.fromkeys(reasons))}") from error
    if is_boolean_as_number(value, converted):
        raise ValueError(f"{name} = {value!r}: must be a number")
    return converted


def is_boolean_as_number(given: object, converted: object) -> bool:
    """Whether pydantic converted a boolean, or one in a list, to a number: it takes `true` as 1."""
    if isinstance(given, (list, tuple)) and isinstance(converted, (list, tuple)):
        return any(map(is_boolean_as_number, given, converted))
    return isinstance(given, bool) and isinstance(converted, (int, float)) and not isinstance(converted, bool)
