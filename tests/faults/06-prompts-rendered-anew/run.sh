#!/bin/bash
# Prompts that leave out earlier thoughts: the third state is still compared, or a message says that it cannot be. Exit status 0: correct.
. "$(dirname "$0")/../lib/env.sh"
"$PY" -W error - <<'P'
import sys, warnings
from types import SimpleNamespace as N
from hgpo.integrations.turns import StepAdvantages
from hgpo.integrations.tinker import step_advantages
def rollout(turns):
    return N(transitions=[N(ob=N(chunks=[N(tokens=o)]), ac=N(tokens=a), reward=0.0) for o, a in turns])
def group(stripped):
    rollouts = []
    for i in range(4):  # 1, 2, 3: what the environment says; 70+i a thought; 8, 80+i, 9 actions
        told = [8] if stripped else [70 + i, 8]
        told2 = [80 + i] if stripped else [70 + i, 80 + i]
        rollouts.append(rollout([([1], [70 + i, 8]), ([1, *told, 2], [70 + i, 80 + i]), ([1, *told, 2, *told2, 3], [9])]))
    return N(trajectories_G=rollouts, final_rewards_G=[float(i % 2) for i in range(4)])
estimate = StepAdvantages("hgpo", options={"mode": "mean_norm", "history_length": 0})
try:
    kept, stripped = ([a.round(2).tolist() for a in step_advantages([group(s)], estimate)[0]] for s in (False, True))
except (ValueError, Warning) as told:
    print("said:", told); sys.exit(0)
print("thoughts kept    ", kept); print("thoughts left out", stripped)
sys.exit(kept != stripped)
P
