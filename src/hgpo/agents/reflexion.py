"""Reflexion: a failed task is tried again, with a lesson that the agent wrote after the failure.

Source: Shinn et al. 2023, "Reflexion: Language Agents with Verbal Reinforcement Learning", arXiv 2303.11366, section 3
and algorithm 1: actor (here ReAct), evaluator (`won` of the environment), self-reflection, and a
memory of the last few lessons.
"""

from __future__ import annotations

from hgpo.agents.base import Agent, AgentSpec
from hgpo.agents.prompts import AgentContext
from hgpo.agents.react import ReactTemplate, worked_examples
from hgpo.messages import Conversation, Message

MEMORY = 3
"""Most lessons in a prompt, as in section 4 of the paper."""
_QUESTION = (
    "The attempt is over and the task was not completed. In a few sentences, say what went wrong and what you will do "
    "differently in the next attempt at the very same task: which places to go to first, which commands to use, what "
    "not to repeat. Write the plan only, no `Action:`."
)


class ReflexionTemplate(ReactTemplate):
    """ReAct's conversation, with the lessons of earlier trials before the task."""

    def head(self, context: AgentContext) -> str:
        """The text before the first remembered observation."""
        before = super().head(context)
        lessons = context.lessons[-MEMORY:]
        if not lessons:
            return before
        noted = "\n".join(f"- {lesson}" for lesson in lessons)
        return f"{before}\n\nYou have tried this very task before and failed. What you noted for this attempt:\n{noted}"

    def reflect(self, context: AgentContext) -> Conversation:
        """The conversation of a failed trial; its last turn ends with the question for a lesson."""
        turns = [*ReactTemplate(self.examples, 0, list_commands=False).render(context)]
        turns[-1] = Message("user", f"{turns[-1].text}\n\n{_QUESTION}")
        return tuple(turns)


def reflexion(spec: AgentSpec, *, trials: int = 3, examples: int = 2, list_commands: bool = True) -> Agent:
    """ReAct, with up to `trials` attempts at each task.

    Args:
        spec: see `react`.
        trials: most attempts at a task; the first success ends them.
        examples: see `react`.
        list_commands: see `react`.

    Raises:
        ValueError: `trials` is below 1, or see `react`.
    """
    if trials < 1:
        raise ValueError(f"agent.options.trials = {trials}; give 1 or more")
    template = ReflexionTemplate(worked_examples(spec, examples), examples, list_commands)
    return Agent(template, history_length=None, trials=trials, reflect=template.reflect)
