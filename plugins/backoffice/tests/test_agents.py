"""The agents `react` and `tools` through a served model that repeats the expert's calls; calls in text and native."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chat_server import ChatServer, Reply, says
from hgpo.cli.main import main
from hgpo.evaluation.result_files import read_evaluation
from hgpo.tool_calls import ToolCallError, parse_action
from hgpo_backoffice import backoffice_suite
from hgpo_backoffice.tools import SCHEMAS
from served_experts import answer_from, ways

TASKS = 8


def served(form: str, ways_known: dict[str, Any]) -> Any:
    """The answers of a server in one of three forms; it answers `{}` where it knows no call."""
    known = answer_from(ways_known, "{}")

    def answer(body: dict[str, Any]) -> Reply:
        text = json.loads(known(body).body)["choices"][0]["message"]["content"]
        try:
            call = parse_action(text)
        except ToolCallError:
            return says(text)
        if form == "react":
            return says(f"Thought: I know the way.\nAction: {text}")
        if form == "text":
            return says(f"<think>{call.tagged}</think>I know the way.\n{call.tagged}")
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        message = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}
        return Reply(json.dumps({"choices": [{"finish_reason": "tool_calls", "message": message}]}).encode())

    return answer


@pytest.mark.parametrize("form", ["react", "text", "native"])
def test_a_served_model_that_knows_the_way_wins_every_case(form: str, tmp_path: Path) -> None:
    suite = backoffice_suite(train_tasks=0, valid_seen_tasks=0, valid_unseen_tasks=TASKS)
    known = ways(suite, "valid_unseen", max_steps=16, count=TASKS, expert=suite.expert())
    words = ["eval", "m", "--env", "hgpo_backoffice.suite:backoffice_suite", "--split", "valid_unseen", "--quiet"]
    words += ["environment.max_steps=16", "environment.options.train_tasks=1", "environment.options.valid_seen_tasks=0"]
    words += [f"environment.options.valid_unseen_tasks={TASKS}", "--agent", "react" if form == "react" else "tools"]
    words += ["policy.options.native_tools=true"] if form == "native" else []
    with ChatServer(served(form, known)) as server:
        assert main([*words, "--server", server.url, "-o", str(tmp_path / "out.json")]) == 0
    assert set(read_evaluation(tmp_path / "out.json").evaluation.tasks_won.values()) == {1.0}
    for body in server.asked:
        assert ("tools" in body) == (form == "native")
        written = json.dumps(body["messages"])
        assert ("<tools>" in written) == (form == "text")
        assert ("find_customer(email): Find the id" in written) == (form == "react")
        if form == "native":
            assert [tool["function"] for tool in body["tools"]] == SCHEMAS
            assert "tool_call>" not in written
            assert [one["role"] for one in body["messages"][1:]] == ["assistant", "tool"] * (len(body["messages"]) // 2)
