"""States of numpy generators as JSON, so that a resumed run draws the numbers the first one would have drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

_BIT_GENERATORS = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64, np.random.MT19937)
}


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """The state as JSON: integers may exceed 64 bits, arrays become {"uint64": [...]}."""
    return _to_json(dict(rng.bit_generator.state))  # type: ignore[no-any-return]


def restore_generator(state: dict[str, Any]) -> np.random.Generator:
    """A generator that continues where `generator_state` was taken.

    Raises:
        ValueError: the state names no bit generator of numpy, or does not fit it.
    """
    kind = _BIT_GENERATORS.get(state.get("bit_generator", ""))
    if kind is None:
        raise ValueError(f"bit generator {state.get('bit_generator')!r} is none of {', '.join(_BIT_GENERATORS)}")
    bit_generator = kind(0)
    try:
        bit_generator.state = _from_json(state)
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"not a {kind.__name__} state: {error}") from error
    return np.random.Generator(bit_generator)


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return {str(value.dtype): [int(item) for item in value]}
    return int(value) if isinstance(value, np.integer) else value


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    for dtype in ("uint32", "uint64"):
        if set(value) == {dtype}:
            return np.array(value[dtype], dtype=dtype)
    return {key: _from_json(item) for key, item in value.items()}
