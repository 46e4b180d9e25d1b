#!/bin/bash
# Equal tool calls are equal actions, whatever random id each call carries. Exit status 0: correct.
. "$(dirname "$0")/../lib/env.sh"
"$PY" - "$HERE/conversations.jsonl" "$TMP" <<'P'
import json, subprocess, sys
from pathlib import Path
source, tmp = sys.argv[1], Path(sys.argv[2])
rows = [json.loads(line) for line in open(source)]
for row in rows:
    for message in row["messages"]:
        for call in message.get("tool_calls") or ():
            call.pop("id")
        message.pop("tool_call_id", None)
bare = tmp / "bare.jsonl"; bare.write_text("".join(json.dumps(row) + "\n" for row in rows))
hgpo = str(Path(sys.executable).with_name("hgpo"))
def advantages(file, *words):
    out = tmp / "out.jsonl"
    subprocess.run([hgpo, "advantages", str(file), "-o", str(out), "--force", *words], check=True, capture_output=True)
    return [round(json.loads(line)["advantage"], 6) for line in out.open()]
bad = False
for words in (["--estimator", "nested_td", "--option", "action_power=0"], ["--estimator", "mixed_effects"], ["--option", "context=observation_action"]):
    a, b = advantages(source, *words), advantages(bare, *words)
    print(words, "with ids", a, "without", b); bad |= a != b
sys.exit(bad)
P
