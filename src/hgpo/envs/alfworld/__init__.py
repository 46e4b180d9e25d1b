"""ALFWorld's household games: real game files or generated ones, played by a native engine."""

from hgpo.envs.alfworld.env import AlfworldEnv
from hgpo.envs.alfworld.game import Game, GameObject, Goal, Receptacle
from hgpo.envs.alfworld.pddl import GameFileError, load_game, parse_game

__all__ = ["AlfworldEnv", "Game", "GameFileError", "GameObject", "Goal", "Receptacle", "load_game", "parse_game"]
