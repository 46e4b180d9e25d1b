"""Environments: a registry of task suites, found by name, by entry point or by `module:factory`.

>>> suite = make("alfworld", size="small", seed=0)        # doctest: +SKIP
>>> environment = suite.tasks("train")[0].make()          # doctest: +SKIP
>>> observation, info = environment.reset()               # doctest: +SKIP
"""

from hgpo.envs.base import Env, Info, StepResult, Task, TaskSuite
from hgpo.envs.registry import make, names, register

__all__ = ["Env", "Info", "StepResult", "Task", "TaskSuite", "make", "names", "register"]
