import pytest

from hgpo.agents import AgentContext, AgentSpec, make_agent
from hgpo.agents.reflexion import MEMORY
from hgpo.messages import as_text

HOUSEHOLD = AgentSpec("alfworld", "household-reasoning", history_length=2)
START = AgentContext(task="put a mug in desk.", observation="You see a desk 1.", step=0)


def reflexion(**options):
    return make_agent("reflexion", HOUSEHOLD, options)


def test_the_last_lessons_are_told_before_the_task_is_begun():
    template = reflexion().template
    assert "failed" not in as_text(template.render(START))
    lessons = tuple(f"lesson {number}" for number in range(MEMORY + 2))
    told = as_text(template.render(AgentContext(**{**_fields(START), "lessons": lessons})))
    assert "- lesson 2\n- lesson 3\n- lesson 4" in told
    assert "lesson 1\n" not in told
    assert told.index("lesson 4") < told.index("You see a desk 1.")


def test_the_question_follows_the_whole_lost_trial_without_examples_and_commands():
    agent = reflexion()
    lost = AgentContext(
        **{**_fields(START), "step": 1, "history": (("You see a desk 1.", "look"),), "responses": ("Action: look",)},
        admissible=("look",),
    )
    messages = agent.reflect(lost)
    assert [message.role for message in messages] == ["user", "assistant", "user"]
    assert "Here is how" not in messages[0].text
    assert messages[-1].text.startswith("Observation: You see a desk 1.\n\nThe attempt is over")
    assert "Possible commands" not in messages[-1].text


def test_the_number_of_trials_is_an_option():
    assert reflexion().trials == 3
    assert reflexion(trials=5).trials == 5
    with pytest.raises(ValueError, match=r"agent\.options\.trials = 0"):
        reflexion(trials=0)


def _fields(context):
    return {"task": context.task, "observation": context.observation, "step": context.step}
