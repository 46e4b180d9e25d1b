"""`--state` and `--trajectories` of `hgpo advantages` and `hgpo inspect`: conversations, compared by a state key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compared import write_run
from hgpo.cli.main import main
from hgpo.estimators.diagnostics import starts_note
from hgpo.report.report import build_report
from house import write_rows
from stored_rollouts import read_rollouts


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    """Three conversations of one task, each in its own words; two of them make the same call."""
    lines = []
    for trajectory, (order, reward) in enumerate([(7, 1.0), (7, 0.0), (8, 0.0)]):
        call = {"id": f"call_{trajectory}", "function": {"name": "find", "arguments": json.dumps({"order": order})}}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": f"Hello, this is number {trajectory}."},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": json.dumps({"order": order, "asked": 100 + trajectory})},
            {"role": "assistant", "content": "Found it."},
        ]
        lines.append({"group": "t", "trajectory": trajectory, "reward": reward, "messages": messages})
    path = tmp_path / "talks.jsonl"
    write_rows(path, lines)
    return path


def test_advantages_by_tool_calls(talks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "steps.jsonl"
    words = ["--trajectories", "--state", "tool_call", "-o", str(output)]
    assert main(["advantages", str(talks), *words]) == 0
    assert capsys.readouterr().out.startswith(
        "state key tool_call: 83.3 % of the steps share their key with another trajectory of the task, 0.0 % share the "
        "stored observation\n"
    )
    rows = read_rollouts(output)
    assert rows.column("level_0_size").to_pylist() == [3, 2, 3, 2, 3, 1]
    assert rows.column("observation")[0].as_py() == "Hello, this is number 0."
    keys = rows.column("state_key").to_pylist()
    assert keys[0] == keys[2] == keys[4] == "no tool call"
    assert keys[1] == keys[3] == '[{"arguments": {"order": 7}, "name": "find"}]'
    # a second time, by another key: the column is replaced
    again = tmp_path / "again.jsonl"
    assert main(["advantages", str(output), "--state", "json", "-o", str(again)]) == 0
    assert read_rollouts(again).column("state_key")[1].as_py() == '{"asked": 100, "order": 7}'


def test_the_summary_as_json_names_the_key(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advantages", str(talks), "--state", "tool_call", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["state"] == "tool_call"
    assert described["state_lines"][0].startswith("state key tool_call: 83.3 %")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("toolcall", "unknown state key 'toolcall'; did you mean tool_call?"),
        ("simulator", "reads state_key of the environment's info, which is not stored"),
    ],
)
def test_keys_that_do_not_exist_or_need_more(
    state: str, message: str, talks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("advantages", "inspect"):
        assert main([command, str(talks), "--state", state]) == 2
        assert message in capsys.readouterr().err


def test_a_report_shows_observations_and_keys(talks: Path) -> None:
    report = build_report(talks, state="tool_call")
    [sampled] = report.samples
    assert sampled.texts["observation"][0] == "Hello, this is number 0."
    assert sampled.texts["state"][:2] == ("no tool call", '[{"arguments": {"order": 7}, "name": "find"}]')
    [matched] = report.matching
    assert matched.startswith("state key tool_call: 83.3 %")
    plain = build_report(talks)
    assert plain.matching == (starts_note(1.0),)
    assert "state" not in plain.samples[0].texts


def test_a_run_whose_state_key_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", {}, "rollout.state=json")
    (run / "rollouts").mkdir()
    seen = ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}')
    step = {"group": "g", "step": 0, "reward": 0.0}
    write_rows(run / "rollouts" / "1.jsonl", [step | {"trajectory": n, "observation": o} for n, o in enumerate(seen)])
    assert main(["advantages", str(run)]) == 0
    assert capsys.readouterr().out.startswith("state key json: 100.0 % of the steps")
    (run / "config.toml").write_text("[run]\n[rollout\n")
    assert main(["advantages", str(run)]) == 2
    assert "config.toml" in (error := capsys.readouterr().err)
    assert "--state" in error
    assert main(["advantages", str(run), "--state", "json"]) == 0
    assert capsys.readouterr().out.startswith("state key json: 100.0 %")
    assert main(["advantages", str(run), "--state", "observation"]) == 0


def test_half_of_a_surrogate_pair_in_json_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a value, and as the name of a field that is left out."""
    path, output = tmp_path / "steps.jsonl", tmp_path / "keyed.parquet"
    seen = [rf'{{"x": "\ud83d", "\udc00": {trajectory}}}' for trajectory in range(12)]
    step = {"group": "a", "step": 0, "reward": 0.0}
    write_rows(path, [{**step, "trajectory": at, "observation": text} for at, text in enumerate(seen)])
    assert main(["advantages", str(path), "--state", "json", "-o", str(output)]) == 0
    assert r"left out \udc00 of {x, \udc00}" in capsys.readouterr().out
    assert set(read_rollouts(output)["state_key"].to_pylist()) == {r'{"x": "\ud83d", "\udc00": "…"}'}
    assert main(["inspect", str(path), "--state", "json", "-o", str(tmp_path / "report.html")]) == 0
