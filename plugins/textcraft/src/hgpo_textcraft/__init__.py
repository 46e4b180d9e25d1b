"""TextCraft for hgpo: get raw items, craft the other items, until the goal is crafted.

Rules and texts are those of the package textcraft (archiki/ADaPT). Recipes are generated, or read from its files.
"""

from hgpo_textcraft.env import TextCraftEnv
from hgpo_textcraft.suite import textcraft_suite

__all__ = ["TextCraftEnv", "textcraft_suite"]
