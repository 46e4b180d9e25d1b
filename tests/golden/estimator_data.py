"""The recorded advantages: how they are stored and read.

`data/advantages.npz` (allow_pickle=False) holds

- values: float64[N, U], the distinct columns of advantages; N steps, those of all batches one after the other;
- returns: float64[N];
- column_of_case: int64[C], which column each case has;
- group_digest, number_digest: uint64[C, BATCHES], see `group_digest` and `number_digest` of `golden.estimator_cases`;
- input_digest: uint64[BATCHES];
- arithmetic_digest: uint64, of the machine that recorded them;
- case: str[C], names of the cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golden import estimator_cases as cases

FILE = Path(__file__).parent / "data" / "advantages.npz"


@dataclass(frozen=True)
class Recorded:
    """What is recorded of one case."""

    values_of_batch: list[Any]
    group_digest_of_batch: list[int]
    number_digest_of_batch: list[int]


class Record:
    """The file, read once."""

    def __init__(self) -> None:
        with np.load(FILE, allow_pickle=False) as file:
            self._stored = {name: file[name] for name in file.files}
        lengths = [len(cases.batch(number)) for number in range(cases.BATCHES)]
        self._ends = np.cumsum(lengths)[:-1]
        self.names: list[str] = self._stored["case"].tolist()
        self.returns_of_batch = np.split(self._stored["returns"], self._ends)
        self.input_digests: list[int] = self._stored["input_digest"].tolist()
        self.arithmetic_digest = int(self._stored["arithmetic_digest"])

    def of(self, name: str) -> Recorded:
        """What is recorded of a case."""
        number = self.names.index(name)
        values = self._stored["values"][:, self._stored["column_of_case"][number]]
        return Recorded(
            np.split(values, self._ends),
            self._stored["group_digest"][number].tolist(),
            self._stored["number_digest"][number].tolist(),
        )


def write() -> None:
    """Compute all cases and write the file."""
    names = list(cases.cases())
    computed = [
        [cases.compute(number, estimator, options) for number in range(cases.BATCHES)]
        for estimator, options in cases.cases().values()
    ]
    column_CN = np.array([np.concatenate([advantages.values for advantages in case]) for case in computed])
    distinct_UN, column_of_case = np.unique(column_CN + 0.0, axis=0, return_inverse=True)
    np.savez_compressed(
        FILE,
        values=np.ascontiguousarray(distinct_UN.T),
        returns=np.concatenate([advantages.returns for advantages in computed[0]]),
        column_of_case=column_of_case.reshape(-1),
        group_digest=np.array([[cases.group_digest(each) for each in case] for case in computed], dtype=np.uint64),
        number_digest=np.array([[cases.number_digest(each) for each in case] for case in computed], dtype=np.uint64),
        input_digest=np.array([cases.input_digest(number) for number in range(cases.BATCHES)], dtype=np.uint64),
        arithmetic_digest=np.uint64(cases.arithmetic_digest()),
        case=np.array(names),
    )
