"""BabyAI for hgpo: minigrid's levels with their missions, observations and commands as text."""

from hgpo_babyai.env import BabyAIEnv
from hgpo_babyai.suite import babyai_suite

__all__ = ["BabyAIEnv", "babyai_suite"]
