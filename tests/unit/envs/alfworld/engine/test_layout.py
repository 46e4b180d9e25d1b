from __future__ import annotations

from dataclasses import replace

import pytest

from hgpo.envs.alfworld.actions import Layout
from unit.envs.alfworld.kitchen import kitchen


def test_numbers_follow_the_ids_not_the_order_of_the_game() -> None:
    game = kitchen()
    shuffled = replace(game, objects=game.objects[::-1], receptacles=game.receptacles[::-1])
    assert Layout.of(shuffled) == Layout.of(game)
    assert [item.name for item in Layout.of(game).objects[:2]] == ["apple 2", "apple 1"]


def test_ids_are_sorted_in_lower_case() -> None:
    game = kitchen()
    small = replace(game.objects[0], id="apple_bar_3", name="apple 3")
    large = replace(game.objects[1], id="Zucchini_bar_1", name="zucchini 1")
    layout = Layout.of(replace(game, objects=(large, small)))
    assert [item.name for item in layout.objects] == ["apple 3", "zucchini 1"]


def test_receptacles_at_one_location_are_found_together() -> None:
    layout = Layout.of(kitchen())
    assert [layout.receptacles[place].name for place in layout.receptacles_at["loc_bar_1"]] == [
        "countertop 1",
        "shelf 1",
    ]


@pytest.mark.parametrize("field", ["id", "name"])
def test_ids_and_names_stand_for_one_thing(field: str) -> None:
    game = kitchen()
    twin = replace(game.objects[1], **{field: getattr(game.objects[0], field)})
    with pytest.raises(ValueError, match=f"kitchen: the {field} .* is used twice; make it unique"):
        Layout.of(replace(game, objects=(game.objects[0], twin)))


@pytest.mark.parametrize("change", [{"receptacles": ("Attic_bar_1",)}, {"inside": ("Attic_bar_1",)}])
def test_dangling_ids_are_named(change: dict[str, object]) -> None:
    game = kitchen()
    lost = replace(game.objects[0], **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'Apple_bar_1' is located in 'Attic_bar_1', which is not in the game"):
        Layout.of(replace(game, objects=(lost,)))
