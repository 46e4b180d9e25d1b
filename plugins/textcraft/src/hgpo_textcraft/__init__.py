"""TextCraft: get what the world has, craft what it has not, until the goal is made.

Rules and texts are those of the package textcraft (archiki/ADaPT); recipes are generated, or read from its files.
"""

from hgpo_textcraft.env import TextCraftEnv
from hgpo_textcraft.suite import textcraft_suite

__all__ = ["TextCraftEnv", "textcraft_suite"]
