"""Writes the data of tests/golden but verl_agent_golden.json: `PYTHONPATH=tests python -m golden.generate [WHAT ...]`.

WHAT is one or more of estimators, sessions and quickstart; default: all. Run it in the root of the repository.

The data pin numbers and sessions as they were at commit 1f19f44. They are regenerated for one reason only: somebody
decided that the numbers have to change, and a record in docs/decisions says which, and why. The files:

- data/advantages.npz: advantages of every estimator with every option value on 50 random batches (`estimator_cases`,
  `estimator_data`).
- data/alfworld_sessions.jsonl, data/webshop_sessions.jsonl, data/real_alfworld_sessions.jsonl: one session per line:
  its name, and [action, digest] of every step (`sessions`). The last needs the real games and is left as it is where
  they are missing.
- data/generated.json: digests of generated games and goals.
- data/quickstart.json: metrics and final weights of five updates of the quickstart, and the CPU (`quickstart`).
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from golden import estimator_data, playing, quickstart, sessions
from golden.internals import alfworld_expert, webshop_expert


def write_sessions(folder: Path) -> None:
    """Play and write all sessions."""
    playing.write(sessions.ALFWORLD_SESSIONS, sessions.alfworld_sessions(folder / "played"), alfworld_expert())
    playing.write(sessions.WEBSHOP_SESSIONS, sessions.webshop_sessions(), webshop_expert())
    if sessions.real_games():
        real = sessions.real_alfworld_sessions(folder / "real")
        playing.write(sessions.REAL_ALFWORLD_SESSIONS, real, alfworld_expert(), as_places=True)
    digests = {"games": sessions.generated_games(folder / "generated"), "goals": sessions.generated_goals()}
    sessions.GENERATED.write_text(json.dumps(digests, indent=1) + "\n")


def main(wanted: list[str]) -> None:
    """Write what is wanted."""
    unknown = set(wanted) - {"estimators", "sessions", "quickstart"}
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; choose estimators, sessions, quickstart")
    with tempfile.TemporaryDirectory() as name:
        if not wanted or "estimators" in wanted:
            estimator_data.write()
        if not wanted or "sessions" in wanted:
            write_sessions(Path(name))
        if not wanted or "quickstart" in wanted:
            quickstart.write(Path(name))


if __name__ == "__main__":
    main(sys.argv[1:])
