"""An OpenEnv server as a task suite: `environment.name = "openenv:http://127.0.0.1:8000"`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from hgpo.envs.base import Expert, MadeOnAccess, Task, TaskSplits
from hgpo.envs.env_checker import EnvContractError
from hgpo.envs.openenv.client import (
    USUAL_ACTIONS,
    Connection,
    OpenEnvEnv,
    RefusedByServer,
    ServerSettings,
    action_field,
    read_page,
)
from hgpo.envs.openenv.protocol import Address, Json, parse_address
from hgpo.utils.text import visible

DEFAULT_SEEDS: Mapping[str, int] = {"train": 2000, "valid_seen": 200, "valid_unseen": 200}
_SEEDS_APART = 1_000_000
"""The difference between the first seeds of consecutive splits."""


def openenv_suite(
    url: str,
    *,
    allow_remote: bool = False,
    timeout: Annotated[float, Field(gt=0, lt=1e6)] = 60.0,
    text_field: str | None = None,
    action_field: str | None = None,
    win_reward: float = 1.0,
    seeds: dict[str, Annotated[int, Field(ge=1, le=_SEEDS_APART)]] | None = None,
    same_start: bool = True,
    expert: str | None = None,
) -> TaskSplits:
    """A suite of the tasks of an OpenEnv server.

    A server of this package (`hgpo serve-env`) has splits, and tasks by number. The tasks of other servers are seeds:
    `seeds` is the number of seeds of each split; no seed is in two splits.

    `allow_remote` allows another machine in `url`. `timeout` is in seconds; answers above 1 MiB are errors, texts above
    20,000 characters are cut. `text_field` and `action_field` name the fields of observations and actions; without them
    usual names are tried and, for actions, the server's schema is read. Observations may have `won`, `task`,
    `admissible_commands` and `score`, as `info` has; without `won`, an episode is won if it ends with a reward of at
    least `win_reward`. With `same_start`, different first observations for one seed are an error. `expert` names an
    installed environment whose expert gives demonstrations.

    Raises:
        ValueError: an option is invalid.
        EnvContractError: the server does not follow the protocol.
    """
    address = parse_address(url, allow_remote=allow_remote)
    state = _state(address, timeout)
    found = action_field or _action_field(address, timeout)
    play = ServerSettings(address, timeout, found, text_field, win_reward, same_start)
    sizes = _splits_of(state)
    description: Json = {"server": address.pages, "environment": state.get("environment")}
    if sizes is not None and seeds is not None:
        raise ValueError(f"seeds: this server defines its own splits ({', '.join(sizes)}); leave the option out")
    counts = dict(seeds or DEFAULT_SEEDS) if sizes is None else sizes
    description["seeds" if sizes is None else "splits"] = counts
    make = {
        split: partial(_Tasks, split, count, play, place * _SEEDS_APART if sizes is None else None)
        for place, (split, count) in enumerate(counts.items())
    }
    return TaskSplits(make, expert=partial(_expert_of, expert), description=description)


def _expert_of(environment: str | None) -> Expert | None:
    """The expert of an installed environment."""
    from hgpo.envs.registry import make

    if environment is None:
        return None
    if ":" in environment:
        raise ValueError(f"expert = {environment!r}; give the name of an installed environment")
    maker = getattr(make(environment), "expert", None)
    return None if maker is None else maker()


def _state(address: Address, timeout: float) -> Json:
    """The server's state before a reset; empty if it has a state only in an episode."""
    connection = Connection(address, timeout)
    try:
        return connection.ask("state")
    except RefusedByServer:
        return {}
    finally:
        connection.close()


def _action_field(address: Address, timeout: float) -> str:
    found = action_field(read_page(address, "/schema", timeout))
    if found is None:
        raise ValueError(
            f"the schema of the server at {address.pages} has no text field for actions (such as "
            f"{', '.join(USUAL_ACTIONS)}); name it with environment.options.action_field"
        )
    return found


def _splits_of(state: Json) -> dict[str, int] | None:
    """Split -> number of tasks of a server of this package; None for any other server."""
    splits = state.get("splits")
    if not isinstance(splits, dict) or not splits:
        return None
    for name, count in splits.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= 10**9 or len(name) > 100:
            raise EnvContractError(f"the server's {visible(name)!r} has {visible(str(count))} tasks, not 1 to 10^9")
    return {visible(name): count for name, count in splits.items()}


class _Tasks(MadeOnAccess[Task]):
    """The tasks of a split, identified by seeds from `first_seed` on or, if that is None, by their numbers."""

    def __init__(self, split: str, size: int, play: ServerSettings, first_seed: int | None) -> None:
        super().__init__(size)
        self._split, self._play, self._first_seed = split, play, first_seed
        self._seen: dict[int, dict[int | None, str]] = {}  # per task, since a task is made anew on each access

    def _element(self, number: int) -> Task:
        start: dict[str, Any] = {"split": self._split, "task": number}
        if self._first_seed is not None:
            start = {"seed": self._first_seed + number}
        make = partial(OpenEnvEnv, self._play, start, self._seen.setdefault(number, {}))
        return Task(f"{self._split}/{number:04d}", "openenv", make)
