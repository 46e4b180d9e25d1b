"""`--trajectories` of `hgpo advantages` and `hgpo inspect`."""

import json

import pytest

from hgpo.cli.main import main


@pytest.fixture
def conversations(tmp_path):
    lines = []
    for trajectory, (first, reward) in enumerate([("go", 1.0), ("go", 0.0), ("wait", 0.0)]):
        talk = [("user", "hall"), ("assistant", first), ("user", "kitchen"), ("assistant", "take")]
        messages = [{"role": role, "content": content} for role, content in talk]
        lines.append({"task": "t", "trajectory": trajectory, "reward": reward, "messages": messages})
    path = tmp_path / "conversations.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_advantages_of_conversations(conversations, tmp_path):
    output = tmp_path / "out.jsonl"
    where = ["advantages", str(conversations), "--trajectories", "--column", "group=task", "-o", str(output)]
    assert main([*where, "--estimator", "grpo"]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["advantage"] > 0 for row in rows] == [True, True, False, False, False, False]
    assert {row["level_0_size"] for row in rows if "level_0_size" in row} <= {3}


@pytest.mark.slow
def test_a_report_of_conversations(conversations, tmp_path, capsys):
    output = tmp_path / "report.html"
    where = ["inspect", str(conversations), "--trajectories", "--column", "group=task", "-o", str(output)]
    assert main(where) == 0
    assert "6 steps of 1" in " ".join(capsys.readouterr().out.split())  # lines break where the path is long
