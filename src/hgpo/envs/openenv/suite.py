"""An OpenEnv server as a task suite: `environment.name = "openenv:http://127.0.0.1:8000"`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from hgpo.envs.base import Expert, Task, TasksByNumber, TaskSplits, check_counts, check_type, check_whole_number
from hgpo.envs.env_checker import EnvContractError
from hgpo.envs.openenv.client import Connection, FirstSeen, OpenEnvEnv, Play, RefusedByServer, Server, read_page
from hgpo.envs.openenv.protocol import USUAL_ACTIONS, Fields, Json, action_field, parse_address
from hgpo.utils.text import visible

DEFAULT_SEEDS: Mapping[str, int] = {"train": 2000, "valid_seen": 200, "valid_unseen": 200}
_SEEDS_APART = 1_000_000
"""The first seed of a server's second split; the third begins at twice as much."""


class OpenEnvSuite(TaskSplits):
    """The tasks of a server. `openenv_suite` builds it."""

    def __init__(
        self, make: Mapping[str, Callable[[], Sequence[Task]]], expert_of: str | None, description: Json
    ) -> None:
        super().__init__(make)
        self._expert_of = expert_of
        self.description = description

    def expert(self) -> Expert | None:
        """The expert of the environment that the option `expert` names."""
        from hgpo.envs.registry import make

        if self._expert_of is None:
            return None
        if ":" in self._expert_of:
            raise ValueError(f"expert = {self._expert_of!r}; give the name of an installed environment")
        maker = getattr(make(self._expert_of), "expert", None)
        return None if maker is None else maker()


def openenv_suite(
    url: str,
    *,
    allow_remote: bool = False,
    timeout: float = 60.0,
    max_message_bytes: int = 1 << 20,
    most_characters: int = 20_000,
    text_field: str | None = None,
    action_field: str | None = None,
    task_field: str | None = None,
    commands_field: str | None = None,
    won_field: str | None = None,
    score_field: str | None = None,
    win_reward: float = 1.0,
    seeds: Mapping[str, int] | None = None,
    same_start: bool = True,
    expert: str | None = None,
) -> OpenEnvSuite:
    """A suite of the tasks of an OpenEnv server.

    A server of this package (`hgpo serve-env`) has splits, and tasks by number. The tasks of other servers are seeds:
    `seeds` is the number of seeds of each split; splits share none.

    `allow_remote` allows another machine in `url`. `timeout` is in seconds; longer answers than `max_message_bytes` are
    errors; a text longer than `most_characters` is cut. The `..._field` options name fields of answers and actions, see
    `Fields`; the default of `action_field` comes from the server's schema. `same_start` rejects servers whose resets do
    not follow their seed. `expert` names an installed environment whose expert gives demonstrations.

    Raises:
        ValueError: an invalid option.
        EnvContractError: the server does not follow the protocol.
    """
    texts = {
        "text_field": text_field,
        "action_field": action_field,
        "task_field": task_field,
        "commands_field": commands_field,
        "won_field": won_field,
        "score_field": score_field,
        "expert": expert,
    }
    _check_options(texts, {"allow_remote": allow_remote, "same_start": same_start}, timeout, win_reward)
    check_whole_number("max_message_bytes", max_message_bytes, 1_024)
    check_whole_number("most_characters", most_characters, 16)
    check_counts("seeds", seeds, "{ train = 2000, valid_unseen = 200 }")
    server = Server(parse_address(url, allow_remote=allow_remote), timeout, max_message_bytes)
    fields = Fields(text_field, task_field, commands_field, won_field, score_field, win_reward, most_characters)
    state = _state(server)
    play = Play(server, fields, action_field or _action_field(server), same_start)
    sizes = _splits_of(state)
    description = {"server": server.address.pages, "environment": state.get("environment")}
    if sizes is None:
        counts = dict(seeds or DEFAULT_SEEDS)
        return OpenEnvSuite(_seeded(play, counts), expert, {**description, "seeds": counts})
    if seeds is not None:
        raise ValueError(f"seeds: this server defines its own splits ({', '.join(sizes)}); leave the option out")
    return OpenEnvSuite(_numbered(play, sizes), expert, {**description, "splits": sizes})


def _check_options(
    texts: Mapping[str, object], flags: Mapping[str, object], timeout: object, win_reward: object
) -> None:
    for name, value in texts.items():
        check_type(name, value, (str,), "text")
    for name, value in flags.items():
        check_type(name, value, (bool,), "true or false")
    for name, value in {"timeout": timeout, "win_reward": win_reward}.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e6:
            raise ValueError(f"{name} = {value!r}; give a number")
    if not isinstance(timeout, int | float) or timeout <= 0:
        raise ValueError(f"timeout = {timeout!r}; give seconds, more than 0")


def _state(server: Server) -> Json:
    """The server's state before a reset; empty if it has a state only in an episode."""
    connection = Connection(server)
    try:
        return connection.ask("state")
    except RefusedByServer as error:
        if error.code != "EXECUTION_ERROR":
            raise
        return {}
    finally:
        connection.close()


def _action_field(server: Server) -> str:
    found = action_field(read_page(server, "/schema"))
    if found is None:
        raise ValueError(
            f"the schema of the server at {server.address.pages} has no text field for actions (such as "
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
            raise EnvContractError(f"the server's split {visible(name)!r} has {visible(str(count))} tasks")
    return {visible(name): count for name, count in splits.items()}


def _numbered(play: Play, sizes: Mapping[str, int]) -> dict[str, Callable[[], Sequence[Task]]]:
    return {split: partial(_Tasks, split, size, play, None) for split, size in sizes.items()}


def _seeded(play: Play, counts: Mapping[str, int]) -> dict[str, Callable[[], Sequence[Task]]]:
    for split, number in counts.items():
        check_whole_number(f"seeds.{split}", number, 1, _SEEDS_APART)
    return {
        split: partial(_Tasks, split, counts[split], play, place * _SEEDS_APART) for place, split in enumerate(counts)
    }


class _Tasks(TasksByNumber):
    """The tasks of a split, by their seeds from `first_seed` on or, with None, by number."""

    def __init__(self, split: str, size: int, play: Play, first_seed: int | None) -> None:
        super().__init__(size)
        self._split, self._play, self._first_seed = split, play, first_seed

    def _task(self, number: int) -> Task:
        start: dict[str, Any] = {"split": self._split, "task": number}
        if self._first_seed is not None:
            start = {"seed": self._first_seed + number}
        return Task(f"{self._split}/{number:04d}", "openenv", partial(OpenEnvEnv, self._play, start, FirstSeen()))
