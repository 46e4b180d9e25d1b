import json

from hgpo.integrations.verl.dumps import DumpColumns, read_dumps
from hgpo.report.loading import list_updates, read_update
from hgpo.report.verl_dumps import is_verl_dump


def dump(folder, update, rows):
    shown = {"observation": "room", "trajectory": "traj_uid", "group": "uid", "step": "step_index"}
    lines = [
        {
            **{shown[name]: row[name] for name in shown},
            "input": row["prompt"],
            "output": row["response"],
            "score": row["reward"],
            "step_reward": row["reward"],
            "step": update,
        }
        for row in rows
    ]
    folder.mkdir(exist_ok=True)
    path = folder / f"{update}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def read(path):
    return read_dumps(path, DumpColumns.with_keys({"observation": "room"}))


def test_a_dump_is_read_like_rollouts(tmp_path, rows):
    path = dump(tmp_path / "dumps", 3, rows)
    assert is_verl_dump(path)
    (file,) = list_updates(tmp_path / "dumps")
    steps = read_update(file, read)
    assert (steps.update, len(steps.batch), steps.notices) == (3, len(rows), ())
    assert steps.texts["response"] == [row["response"] for row in rows]
    assert steps.batch.reward.tolist() == [row["reward"] for row in rows]


def test_half_a_line_is_left_out_with_its_trajectory(tmp_path, rows):
    path = dump(tmp_path / "dumps", 3, rows)
    path.write_bytes(path.read_bytes()[:-20])
    steps = read_update(list_updates(tmp_path / "dumps")[0], read)
    assert len(steps.batch) == len(rows) - 1
    assert str(steps.notices[0]).startswith(f"3.jsonl, row {len(rows)}: is not a JSON object")


def test_a_dump_without_what_is_needed_says_what(tmp_path, rows):
    dump(tmp_path / "dumps", 3, rows)
    steps = read_update(list_updates(tmp_path / "dumps")[0], read_dumps)
    assert steps.batch is None
    assert "3.jsonl line 1: no observation" in str(steps.notices[0])


def test_own_rollouts_are_no_dump(folder):
    assert not any(is_verl_dump(file.path) for file in list_updates(folder))
