"""SmolLM2 behind real servers: what would be started, what is kept, and that the page shows what was played."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import prompted_agents
from hgpo.evaluation import Evaluation, Rate
from hgpo.runs.evaluation_files import StoredEvaluation, TokenCount, write_evaluation
from prompted_agents import BEGIN, END, FOUND, PAGE, cells, main, row, table, with_table
from real_servers import Start, free_port, serving, start_of

LIMITS = {"games": 24, "max_steps": 8, "trials": 2, "response_tokens": 64}
EVALUATION = Evaluation(
    split="valid_unseen",
    temperature=0.4,
    seeds=(123,),
    success=Rate(0.25, 0.12, 0.45, 24),
    score=0.3,
    by_seed=(0.25,),
    by_task_type={},
    episode_length=12.5,
    valid_actions=0.5,
    admissible_actions=None,
    tasks_won={"a": 1.0},
)
STORED = StoredEvaluation(EVALUATION, episodes=24, failed=1, tokens=TokenCount(22_000, 2_000), requests=300)
FULL_ROW: dict[str, Any] = {"server": "vllm", "environment": "webshop", "agent": "react", **row(STORED)}


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> None:
    monkeypatch.setattr("sys.argv", ["prompted_agents.py", str(folder), "--model", "SmolLM2.Q4_1.gguf", *words])
    main()


def test_a_row() -> None:
    assert cells(FULL_ROW) == (
        *("shops", "`react`", "vLLM"),
        *("25.0 % [12.0, 45.0] of 24", "0.300", "12.5", "50.0 %", "1,000", "1"),
    )


def test_a_dry_run_names_two_servers_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_evaluation(tmp_path / "vllm-webshop-react.json", STORED)
    run(monkeypatch, tmp_path, "--dry-run")
    lines = capsys.readouterr().out.splitlines()
    servers = [line for line in lines if line.startswith("cd ")]
    assert ["transformers serve SmolLM2" in line for line in servers] == [True, False]
    assert all("--host 127.0.0.1" in line for line in servers)
    evaluations = [line for line in lines if " eval " in line]
    assert len(evaluations) == 11
    assert not any("vllm-webshop-react" in line for line in evaluations)
    assert [path.name for path in tmp_path.iterdir()] == ["vllm-webshop-react.json"]


def test_what_is_complete_is_kept_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, found = tmp_path / "agents.md", tmp_path / "found.json"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    monkeypatch.setattr(prompted_agents, "PAGE", page)
    monkeypatch.setattr(prompted_agents, "FOUND", found)
    monkeypatch.setattr(prompted_agents, "as_folder", lambda model, folder: folder)
    monkeypatch.setattr(prompted_agents, "serving", lambda *_, **__: pytest.fail("nothing is missing"))
    folder = tmp_path / "kept"
    folder.mkdir()
    write_evaluation(folder / "vllm-webshop-react.json", STORED)
    chosen = ["--servers", "vllm", "--environments", "webshop", "--agents", "react"]
    run(monkeypatch, folder, *chosen, "--write")
    stored = json.loads(found.read_text())
    assert stored["limits"] == LIMITS
    assert table(stored) in page.read_text()
    assert "old" not in page.read_text()
    assert page.read_text().endswith(f"{END}\nafter\n")
    with pytest.raises(SystemExit, match="take another"):
        run(monkeypatch, folder, *chosen, "--max-steps", "20")


def test_a_server_that_ends_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]
    with (
        pytest.raises(RuntimeError, match=r"status 1:\nno such model"),
        serving(Start(command, tmp_path), free_port(), tmp_path / "log", seconds=60),
    ):
        pytest.fail("it does not answer")


def test_a_server_is_ended_with_the_block(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "health").write_text("ok")
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    with serving(Start(command, tmp_path), port, tmp_path / "log", seconds=60) as url:
        assert url == f"http://127.0.0.1:{port}/v1"
    with (
        pytest.raises(TimeoutError, match="no answer"),
        serving(
            Start([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path),
            port,
            tmp_path / "log2",
            seconds=0.1,
        ),
    ):
        pytest.fail("nobody listens there any more")


def test_vllm_gets_its_library_where_it_has_one(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    lengths = {"max_tokens": 100, "at_once": 2}
    assert "LD_PRELOAD" not in start_of("vllm", python, tmp_path / "m", 1, **lengths).environment
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    assert "LD_PRELOAD" in start_of("vllm", python, tmp_path / "m", 1, **lengths).environment


def test_the_page_shows_what_was_played() -> None:
    page = PAGE.read_text(encoding="utf-8")
    between = page.partition(BEGIN)[2].partition(END)[0].strip()
    if not FOUND.exists():
        assert not between, "a table without the figures that it is made of"
        pytest.skip("no evaluation has been played yet: benchmarks/prompted_agents.py --write")
    assert with_table(page, json.loads(FOUND.read_text(encoding="utf-8"))) == page
