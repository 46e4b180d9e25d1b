"""docs/gpu.md shows what the phases wrote, and packed files travel and arrive whole."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distributions, version
from pathlib import Path

import pytest

from gpu.pack import cut, into_loads, write_loads
from gpu.page import FILES, PAGE, section, stored_files, tables

ROOT = Path(__file__).parents[3]


def test_the_page_shows_what_was_measured() -> None:
    found = [json.loads(path.read_text(encoding="utf-8")) for path in stored_files()]
    assert found
    assert tables(found) in PAGE.read_text(encoding="utf-8")


def test_a_part_that_failed_is_in_the_page_and_one_that_was_skipped_too() -> None:
    document = json.loads((FILES / "phase1.rehearsal.json").read_text(encoding="utf-8"))
    document["parts"]["resume"] = {"seconds": 1.0, "failed": "ValueError: it | broke\nin two lines"}
    document["parts"]["out of memory"] = {"skipped": "0 s were left"}
    document["parts"]["tests"]["holds"] = False
    text = section(document)
    assert "| resume | ValueError: it / broke |" in text
    assert "| out of memory | 0 s were left |" in text
    assert "**no**" in text


def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int = 1000) -> Path:
    """A model in two parts, each a load of its own."""
    monkeypatch.setattr("gpu.pack.PART", size // 2)
    model, staging, output = tmp_path / "a.gguf", tmp_path / "staging", tmp_path / "out"
    model.write_bytes(bytes(range(250)) * (size // 250))
    staging.mkdir()
    output.mkdir()
    joined = cut(model, staging)
    loads = into_loads(sorted(staging.iterdir()), size // 2)
    assert [len(load) for load in loads] == [1, 1]
    write_loads(loads, joined, output)
    return output


def unpack(load: Path, to: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FILES / "unpack.py"), str(load), "--to", str(to)]
    return subprocess.run(command, capture_output=True, text=True)


def test_halves_are_joined_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = packed(tmp_path, monkeypatch)
    assert "still to come: a.gguf.part2 (load 2)" in unpack(output / "load-1", tmp_path / "there").stdout
    assert "complete" in unpack(output / "load-2", tmp_path / "there").stdout
    assert (tmp_path / "there" / "a.gguf").read_bytes() == (tmp_path / "a.gguf").read_bytes()


def test_what_runs_from_its_sources_is_found_by_its_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = packed(tmp_path, monkeypatch)
    for load in ("load-1", "load-2"):
        unpack(output / load, tmp_path / "there")
    [package] = distributions(path=[str(tmp_path / "there" / "site")])
    assert package.version == version("hgpo")
    assert {one.name for one in package.entry_points} >= {"alfworld", "webshop"}


def test_a_damaged_half_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = packed(tmp_path, monkeypatch)
    half = output / "load-1" / "a.gguf.part1"
    half.write_bytes(b"x" + half.read_bytes()[1:])
    refused = unpack(output / "load-1", tmp_path / "there")
    assert refused.returncode == 1
    assert "a.gguf.part1 is damaged" in refused.stderr


def test_a_file_that_is_too_large_to_travel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 11)
    with pytest.raises(SystemExit, match="large has"):
        into_loads([tmp_path / "large"], 10)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_phase_is_rehearsed(number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"gpu.phase{number}", "--rehearse", "--work", str(tmp_path)]
    ended = subprocess.run(
        [*command, "-o", str(tmp_path / "found.json")], cwd=ROOT / "benchmarks", capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    document = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    if (stored := FILES / f"phase{number}.rehearsal.json").exists():
        assert document["parts"].keys() == json.loads(stored.read_text(encoding="utf-8"))["parts"].keys()
    assert "not measured" not in section(document)
