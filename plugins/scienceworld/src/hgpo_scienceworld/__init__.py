"""ScienceWorld for hgpo: the package's 30 task types, with one JVM for all environments of a process."""

from hgpo_scienceworld.env import ScienceWorldEnv
from hgpo_scienceworld.suite import scienceworld_suite

__all__ = ["ScienceWorldEnv", "scienceworld_suite"]
