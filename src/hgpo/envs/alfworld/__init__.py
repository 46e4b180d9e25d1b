"""ALFWorld: household tasks from real or generated game files, with a native engine."""

from hgpo.envs.alfworld.engine import AlfworldEnv
from hgpo.envs.alfworld.expert import Expert
from hgpo.envs.alfworld.game import Game, GameObject, Goal, Receptacle
from hgpo.envs.alfworld.suite import alfworld_suite
from hgpo.envs.alfworld.tw_pddl.reading import GameFileError, load_game, parse_game
from hgpo.envs.alfworld.tw_pddl.writing import export_game, generate_games

__all__ = [
    "AlfworldEnv",
    "Expert",
    "Game",
    "GameFileError",
    "GameObject",
    "Goal",
    "Receptacle",
    "alfworld_suite",
    "export_game",
    "generate_games",
    "load_game",
    "parse_game",
]
