"""What every file has to go through, however it was damaged."""

from __future__ import annotations

import gc
import time

from hgpo.envs.alfworld import AlfworldEnv, Game, GameFileError, parse_game

SECONDS = 1.0


def read_or_refuse(content: str | bytes) -> Game | None:
    """The one way to fail is the documented error, short and soon; what is read can be played.

    The time is this thread's, without the garbage collector: thousands of examples leave it much to do that is not the
    file's fault.
    """
    gc.disable()
    started = time.thread_time()
    game, refusal = None, "some file: "
    try:
        game = parse_game(content, "some file")
    except GameFileError as error:
        refusal = str(error)
    else:
        play(game)
    finally:
        gc.enable()
    assert time.thread_time() - started < SECONDS
    assert refusal.startswith("some file: ")
    assert len(refusal) < 500
    return game


def play(game: Game) -> None:
    """A few commands of every sort."""
    env = AlfworldEnv(game)
    _, info = env.reset()
    for command in [*info["admissible_commands"][:3], *game.walkthrough[:2]]:
        if env.step(command)[2]:
            return
