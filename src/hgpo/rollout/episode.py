"""One episode, without I/O: the agent's next prompt, and the result of its action.

The caller asks the policy for a response to the prompt, carries out the action and passes the environment's result to
`finish`. Batches of episodes in turns, asynchronous episodes and experts all use this class. It does not check the
environment contract: `hgpo.envs.wrappers` does, so tasks come from a `LimitedSuite`.

    context() ─▶ prompt ─▶ response ─▶ answer() ─▶ environment.step(action) ─▶ finish() ─▶ StepRecord
                                          command ─▶ environment.step(command) ─▶ advance()
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hgpo.agents import AgentContext, ParsedAction
from hgpo.envs.base import StepResult
from hgpo.messages import as_text, closes_thought
from hgpo.policies.base import NO_TOKENS, Response, TokenIds
from hgpo.rollout.prompts import Prompt, PromptWithoutMemoryTooLong, RolloutRules, fit_prompts
from hgpo.rollout.records import StepRecord
from hgpo.rollout.state_keys import Visit, make_key


@dataclass(frozen=True, slots=True)
class EpisodeIds:
    """The ids of an episode."""

    group: str
    trajectory: str
    task_id: str
    task_type: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A policy's response to a prompt, and the action read from it.

    Attributes:
        admissible: whether the environment listed the action; None if it listed no actions.
    """

    prompt: Prompt
    response: Response
    action: ParsedAction
    admissible: bool | None


@dataclass(frozen=True, slots=True)
class Transition:
    """The result of an action.

    Attributes:
        reward: the step's reward in training.
        won: whether the episode counts as won after this step: `info["won"]` was True in it or in an earlier one.
        score: the environment's grade in 0-1; without a grade, 1 if won, else 0.
        terminated, truncated: as in Gymnasium, but never both, see `LimitedEnv`.
    """

    reward: float
    won: bool
    score: float
    terminated: bool
    truncated: bool


class Episode:
    """An unfinished trajectory.

    Attributes:
        ids: see `EpisodeIds`.
        observation, info: the environment's last observation and info; a missing `task` or `tools` is the earlier one.
        step: number of steps so far.
        ended: whether the environment has ended it.

    Example:
        episode = Episode(ids, rules, *environment.reset(seed=7))
        while not episode.ended:
            [prompt] = fit_prompts([episode.context()], policy, rules.template.render)
            [response] = policy.generate(draw_requests([prompt.text], policy, rng, temperature=1.0), temperature=1.0)
            answer = episode.answer(prompt, response)
            record = episode.finish(answer, environment.step(answer.action.action))
    """

    def __init__(
        self,
        ids: EpisodeIds,
        rules: RolloutRules,
        observation: str,
        info: Mapping[str, Any],
        lessons: tuple[str, ...] = (),
    ) -> None:
        """Start from the result of `reset` and the lessons of earlier trials of the same task.

        Raises:
            RolloutError: the state key needs what the environment does not give.
        """
        rules.check_start(ids.task_id, info)
        self.ids, self.observation, self.info = ids, observation, info
        self.step = 0
        self.ended = False
        self._rules = rules
        self._history: deque[tuple[str, str]] = deque(maxlen=rules.history_length)
        self._responses: deque[str] = deque(maxlen=rules.history_length)
        self._lessons = lessons
        self._key = make_key(rules.state)
        self._anchor = self._key(Visit(observation, None, info))
        self._won = False

    def context(self) -> AgentContext:
        """Return the information for the agent's next prompt."""
        return AgentContext(
            task=str(self.info.get("task") or ""),
            observation=self.observation,
            step=self.step,
            history=tuple(self._history),
            admissible=tuple(self.info.get("admissible_commands") or ()),
            responses=tuple(self._responses),
            kind=self.ids.task_type,
            lessons=self._lessons,
            tools=tuple(self.info.get("tools") or ()),
        )

    def answer(self, prompt: Prompt, response: Response) -> Answer:
        """The response with the action that is to be carried out; an unclosed thought contains no action."""
        if response.in_thought and not closes_thought(response.text):
            action = ParsedAction("", False, "unclosed thought")
        else:
            action = self._as_listed(self._rules.template.parse(response.with_opening))
        listed = self.info.get("admissible_commands")
        return Answer(prompt, response, action, action.action in listed if listed else None)

    def _as_listed(self, parsed: ParsedAction) -> ParsedAction:
        """The admissible command that the action means; templates write lower case and single spaces."""
        listed = self.info.get("admissible_commands") or ()
        if parsed.action in listed:
            return parsed
        meant = {command for command in listed if command.lower().split() == parsed.action.lower().split()}
        return replace(parsed, action=meant.pop()) if len(meant) == 1 else parsed

    def finish(self, answer: Answer, result: StepResult) -> StepRecord:
        """Update the episode by `result`, the environment's result of the action, and return the step's record."""
        rules, action, response = self._rules, answer.action, answer.response
        before, step = self._anchor, self.step
        transition = self.advance(action.action, result, response.with_opening)
        return StepRecord(
            group=self.ids.group,
            trajectory=self.ids.trajectory,
            step=step,
            task_id=self.ids.task_id,
            task_type=self.ids.task_type,
            observation=before,
            prompt=as_text(answer.prompt.text),
            response=response.text,
            action=action.action,
            valid=action.valid,
            fault=action.fault,
            admissible=answer.admissible,
            reward=transition.reward,
            penalty=0.0 if action.valid else rules.invalid_action_penalty,
            won=transition.won,
            score=transition.score,
            terminated=transition.terminated,
            truncated=transition.truncated,
            finished=response.finished,
            forgotten=answer.prompt.forgotten,
            next_observation=self._anchor,
            prompt_ids=response.prompt_ids,
            token_ids=response.token_ids,
            log_probs=response.log_probs,
            next_prompt_ids=self._cut_prompt_ids(transition),
        )

    def _cut_prompt_ids(self, transition: Transition) -> TokenIds:
        """The prompt's tokens, int32[P], for the state in which a time limit cut the episode.

        Empty if no return follows, and if the prompt is too long even without memory: no policy answers it, so its
        further return counts as 0 instead of ending the run.
        """
        encoder = self._rules.cut_encoder
        is_over = transition.won and self._rules.reward == "won"
        if encoder is None or not transition.truncated or is_over:
            return NO_TOKENS
        try:
            [prompt] = fit_prompts([self.context()], encoder, self._rules.template.render)
        except PromptWithoutMemoryTooLong:
            return NO_TOKENS
        [ids] = encoder.encode_prompts([prompt.text])
        return ids

    def advance(self, action: str, result: StepResult, response: str = "") -> Transition:
        """Update the episode after `action`; `response` is the text of the model, "" if no model chose the action."""
        observation, reward, terminated, truncated, info = result
        won, score = self._won or bool(info["won"]), info.get("score")
        earned = float(won and not self._won) if self._rules.reward == "won" else float(reward)
        transition = Transition(
            reward=self._rules.reward_scale * earned,
            won=won,
            score=float(won if score is None else score),
            terminated=bool(terminated),
            truncated=bool(truncated),
        )
        self._history.append((self.observation, action))
        self._responses.append(response)
        self._anchor = self._key(Visit(observation, action, info))
        kept = {name: self.info[name] for name in ("task", "tools") if info.get(name) is None and name in self.info}
        self.observation, self.info = observation, {**info, **kept} if kept else info
        self.step += 1
        self._won = won
        self.ended = transition.terminated or transition.truncated
        return transition
