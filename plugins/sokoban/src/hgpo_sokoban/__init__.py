"""Sokoban for hgpo: push every box onto a goal, on generated boards that are solvable by construction."""

from hgpo_sokoban.suite import SokobanEnv, sokoban_suite

__all__ = ["SokobanEnv", "sokoban_suite"]
