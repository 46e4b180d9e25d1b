from __future__ import annotations

import pytest

from hgpo.envs.alfworld import Goal
from hgpo.envs.alfworld.tw_pddl.problem import parse_expression, read_goal

PLACED = "(objectType ?o MugType) (receptacleType ?r DeskType) (inReceptacle ?o ?r)"
TWO = (
    f"(and {PLACED} (exists (?p - object) (and (not (= ?o ?p)) (objectType ?p MugType) "
    "(receptacleType ?r DeskType) (inReceptacle ?p ?r))))"
)
LIT = (
    "(exists (?l - object) (and (objectType ?l DeskLampType) (toggleable ?l) (isToggled ?l) "
    "(receptacleAtLocation ?r ?w) (atLocation ?a ?w) (inReceptacle ?l ?r)))"
)


def goal(*conditions: str) -> Goal:
    return read_goal(parse_expression(f"(:goal (and {' '.join(conditions)}))")[1:])


@pytest.mark.parametrize(
    ("conditions", "task_type", "target"),
    [
        ((PLACED,), "pick_and_place_simple", "Desk"),
        ((PLACED, "(cleanable ?o) (isClean ?o)"), "pick_clean_then_place_in_recep", "Desk"),
        (("(isHot ?o)", PLACED, "(heatable ?o)"), "pick_heat_then_place_in_recep", "Desk"),
        (
            (f"(exists (?o - object) (and {PLACED} (coolable ?o) (isCool ?o)))",),
            "pick_cool_then_place_in_recep",
            "Desk",
        ),
        ((TWO,), "pick_two_obj_and_place", "Desk"),
        ((LIT, "(objectType ?o MugType) (holds ?a ?o)"), "look_at_obj_in_light", "DeskLamp"),
    ],
)
def test_the_six_templates(conditions: tuple[str, ...], task_type: str, target: str) -> None:
    assert goal(*conditions) == Goal(task_type, "Mug", target)


@pytest.mark.parametrize(
    "conditions",
    [
        "",
        "(objectType ?o MugType)",
        PLACED + "(isHot ?o)",
        PLACED + "(heatable ?o) (isHot ?other)",
        PLACED.replace("inReceptacle ?o ?r", "inReceptacle ?o ?elsewhere"),
        PLACED.replace("inReceptacle ?o ?r", "inReceptacle ?o"),
        TWO.replace("?p MugType", "?p CupType"),
        TWO.replace("(not (= ?o ?p))", ""),
        " ".join(f"(objectType ?o{number} MugType)" for number in range(1000)),
    ],
)
def test_other_conditions_are_refused(conditions: str) -> None:
    with pytest.raises(ValueError, match="none of the six templates"):
        goal(conditions)


@pytest.mark.parametrize("part", ["(not (holds ?a ?o))", "(forall (?o - object) (isClean ?o))", "(or (p ?x) (q ?x))"])
def test_other_connectives_are_refused(part: str) -> None:
    with pytest.raises(ValueError, match="the goal has a part that no template has"):
        goal(PLACED, part)
