"""Actions that no built-in environment accepts."""

from __future__ import annotations

import pytest

from hgpo.envs.alfworld import AlfworldEnv
from hgpo.envs.base import Env
from hgpo.envs.webshop import WebShopEnv
from unit.envs.alfworld.kitchen import kitchen
from unit.envs.webshop.shop import small_catalog


@pytest.mark.parametrize("action", [3, None, b"look", ["look"]])
@pytest.mark.parametrize("environment", [AlfworldEnv(kitchen()), WebShopEnv(small_catalog(), goal=0)])
def test_an_action_is_text(environment: Env, action: object) -> None:
    environment.reset()
    with pytest.raises(TypeError, match=rf"the action is of type {type(action).__name__}; actions are text"):
        environment.step(action)  # type: ignore[arg-type]
    assert environment.step("nonsense")[2:4] == (False, False)
