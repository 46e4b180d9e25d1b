"""Which run a folder of verl's checkpoints belongs to.

verl continues from whatever checkpoint its folder holds, and below `$CHECKPOINTS_DIR` that folder has the name of the
experiment alone, which recipes share. So a run writes its own path into the folder before anything else, and a folder
that another run has written into is refused.
"""

from __future__ import annotations

from pathlib import Path

from hgpo.config import ConfigError

OWNER_FILE = "hgpo_run.txt"
_REMEDY = "choose another run.name or CHECKPOINTS_DIR"


def claim(checkpoints: Path, run: Path) -> bool:
    """Write down that `checkpoints` is the run's; of two runs that begin at once, one gets it.

    Returns whether it was nobody's before. `ConfigError` names the run it belongs to, if that is another one.
    """
    checkpoints.mkdir(parents=True, exist_ok=True)
    path = checkpoints / OWNER_FILE
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(f"{run}\n")
        return True
    except FileExistsError:
        owner = path.read_text(encoding="utf-8").strip()
    if not owner:
        raise ConfigError(f"another run is taking {checkpoints} at this moment, or died at it: then delete {path}")
    if owner != str(run):
        raise ConfigError(
            f"{checkpoints} belongs to the run {owner}: {_REMEDY}. If that run was moved to {run}, write the new path "
            f"into {path}; if it is no more, delete {checkpoints}"
        )
    return False


def claim_empty(checkpoints: Path, run: Path) -> bool:
    """`claim` for a run that begins; checkpoints that are there already, whose ever they are, are refused too."""
    claimed = claim(checkpoints, run)
    if any(path.name != OWNER_FILE for path in checkpoints.iterdir()):
        if claimed:
            release(checkpoints)
        raise ConfigError(
            f"{checkpoints} holds another run's checkpoints, which this one would continue from: {_REMEDY}, or delete "
            "them"
        )
    return claimed


def release(checkpoints: Path) -> None:
    """Undo `claim`."""
    (checkpoints / OWNER_FILE).unlink()
