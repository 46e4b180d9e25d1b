#!/bin/bash
# An "Action:" line inside <think>…</think> is a thought; the line after it is the action. Exit status 0: correct.
. "$(dirname "$0")/../lib/env.sh"
"$PY" - <<'P'
import sys
from hgpo.agents import AgentSpec, make_agent
from hgpo.agents.react import remembered
template = make_agent("react", AgentSpec("alfworld", "household-reasoning", 2), {}).template
said = "<think>\nThe fridge may hold it. One choice would be\nAction: go to fridge 1\nbut apples lie on counters more often.\n</think>\n\nThought: Apples lie on counters.\nAction: go to countertop 1"
bare = said.removeprefix("<think>\n")  # R1, QwQ, Qwen3-Thinking: the template has written the opening tag
got = [template.parse(text).action for text in (said, bare)]
print("played", got, "| told again as", repr(remembered(said, got[0])))
sys.exit(got != ["go to countertop 1"] * 2 or "go to countertop 1" not in remembered(said, got[0]))
P
