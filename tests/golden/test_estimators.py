"""Advantages of every estimator and option are those of commit 1f19f44.

Regenerating the data needs a decision record in docs/decisions: see `generate.py`.

Where this machine's numpy rounds powers and sums as the recording machine's did (`arithmetic_digest`), advantages must
be equal bit for bit. They are sums, quotients and roots that numpy computes in one order on one thread, without BLAS;
switching off AVX2 and FMA (NPY_DISABLE_CPU_FEATURES=X86_V3) changes no bit. The last bit of a power depends on the
library that computes it, though. Elsewhere they must agree to 1e-12 and be 0 exactly where the record is 0; the
groups must be the same on every machine.
"""

from __future__ import annotations

import numpy as np
import pytest

from golden import estimator_cases as cases
from golden.estimator_data import Record

FIVE_BATCHES = range(18, cases.BATCHES, 7)
"""Every discount, set of rewards and choice of columns, single trajectories (39) and equal ones (46)."""
TOLERANCE = 1e-12  # relative, and absolute: differences of returns of size 1 cancel


@pytest.fixture(scope="module")
def record() -> Record:
    return Record()


@pytest.fixture(scope="module")
def exact(record: Record) -> bool:
    """Whether this machine rounds as the recording machine did."""
    return cases.arithmetic_digest() == record.arithmetic_digest


def test_the_record_has_every_case(record: Record) -> None:
    assert record.names == list(cases.cases())


def test_batches_are_the_recorded_ones(record: Record) -> None:
    assert [cases.input_digest(number) for number in range(cases.BATCHES)] == record.input_digests


def test_returns(record: Record, exact: bool) -> None:
    for number in range(cases.BATCHES):
        returns = cases.compute(number, "rloo", {}).returns
        assert_same(returns, record.returns_of_batch[number], exact, f"returns of batch {number}")


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param(FIVE_BATCHES, id="five batches"),
        pytest.param(range(cases.BATCHES), id="all batches", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", cases.cases())
def test_advantages(name: str, batches: range, record: Record, exact: bool) -> None:
    estimator, options = cases.cases()[name]
    recorded = record.of(name)
    for number in batches:
        advantages, where = cases.compute(number, estimator, options), f"{name}, batch {number}"
        assert_same(advantages.values, recorded.values_of_batch[number], exact, where)
        assert cases.group_digest(advantages) == recorded.group_digest_of_batch[number], f"groups of {where}"
        if exact:
            digest = cases.number_digest(advantages)
            assert digest == recorded.number_digest_of_batch[number], f"mean, std, advantage or weight of {where}"


def assert_same(values: np.ndarray, recorded: np.ndarray, exact: bool, where: str) -> None:
    """Fail with the first rows that differ."""
    assert values.dtype == np.float64
    assert values.shape == recorded.shape, where
    if exact:
        differs = values != recorded
    else:
        differs = ~np.isclose(values, recorded, rtol=TOLERANCE, atol=TOLERANCE) | ((values == 0.0) != (recorded == 0.0))
    rows = np.flatnonzero(differs)
    first = "; ".join(f"row {row}: {values[row]!r}, recorded {recorded[row]!r}" for row in rows[:3])
    assert not len(rows), f"{where}: {len(rows)} of {len(values)} rows differ: {first}"
