"""Input from strangers: games, steps, recipes, models, words. It is taken, or refused by name, and acts on nothing.

What a terminal is told never holds a control character, whatever the input says.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from chat_server import ChatServer, Reply
from torture.damage import DAMAGES
from torture.invoking import Invocation, invoke
from torture.outcomes import Outcome
from torture.specimen import RUN, make_specimen
from torture.words import hostile_text, hostile_value
from unit.envs.webshop.test_product import RECORD

FACTS = {"attributes": ["blue"], "instruction": "Find me a mug", "instruction_attributes": ["blue"]}
_GAMES = ("generate-games", "games", "--train", "3", "--valid-seen", "1", "--valid-unseen", "1")
_ESCAPES = [chr(code) for code in (*range(0x09), *range(0x0B, 0x0D), *range(0x0E, 0x20), 0x7F, 0x9B, 0x202E)]


def hostile(folder: Path, rng: Random) -> Iterator[Outcome]:
    """One input of one kind."""
    run = make_specimen(folder.parent / "specimen").finished / RUN
    invoke(list(_GAMES), folder)
    inputs: list[Callable[[Path, Path, Path, Random], Outcome]] = [
        games,
        steps,
        conversations,
        replies,
        shops,
        recipes,
        models,
        words,
        overrides,
    ]
    while True:
        case = folder / "case"
        shutil.rmtree(case, ignore_errors=True)
        case.mkdir()
        yield rng.choice(inputs)(folder, run, case, rng)


def games(made: Path, run: Path, cwd: Path, rng: Random) -> Outcome:
    """A damaged file of household games is played."""
    shutil.copytree(made / "games", cwd / "games")
    path = rng.choice(sorted(path for path in (cwd / "games").rglob("*") if path.is_file()))
    how = rng.choice(DAMAGES)(path, rng)
    played = invoke(["play", "alfworld", "--option", "data_dir=games", "--split", "train"], cwd)
    return judged(f"play games, {path.name} {how}", played)


def steps(made: Path, run: Path, cwd: Path, rng: Random) -> Outcome:
    """Rollouts whose rows hold anything at all."""
    rows = [_row(number, rng) for number in range(rng.randint(1, 12))]
    (cwd / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = rng.choice([["advantages", "steps.jsonl"], ["inspect", "steps.jsonl"], ["play", "steps.jsonl"]])
    return judged(f"{words[0]} of odd rows: {json.dumps(rows)[:300]}", invoke(words, cwd))


def conversations(made: Path, run: Path, cwd: Path, rng: Random) -> Outcome:
    """Conversations in which parts of messages hold anything at all, as lines or as an array."""
    call = {"id": "c", "function": {"name": "go", "arguments": '{"to": "hall"}'}}
    talk: list[object] = [
        {"role": "system", "content": "rules"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "hall"}, {"type": "image_url", "image_url": {"url": "x"}}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "kitchen"},
        {"from": "gpt", "value": "take"},
    ]
    lines = [{"group": 0, "trajectory": number, "reward": 1, "messages": _changed(talk, rng)} for number in range(2)]
    name = rng.choice(["talk.jsonl", "talk.json"])
    text = json.dumps(lines) if name == "talk.json" else "".join(json.dumps(line) + "\n" for line in lines)
    (cwd / name).write_text(text, encoding="utf-8")
    command = rng.choice(["advantages", "inspect"])
    return judged(f"{command} of {name}: {json.dumps(lines)[:300]}", invoke([command, name], cwd))


def replies(made: Path, run: Path, cwd: Path, rng: Random) -> Outcome:
    """A server whose completions hold anything at all, sometimes with a status of failure."""
    message = {"role": "assistant", "content": "Action: look", "tool_calls": None, "refusal": None}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    completion = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "usage": usage}
    completion |= {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
    body = json.dumps(rng.choice([_changed(completion, rng), {"error": {"message": hostile_text(rng), "code": 402}}]))
    reply = Reply(body.encode("utf-8", "replace"), rng.choice([200, 200, 200, 400, 404, 500]))
    words = [
        "--env",
        "corridor:CorridorSuite",
        "--split",
        "held_out",
        "--agent",
        "react",
        "--games",
        "2",
        "-o",
        "e.json",
    ]
    with ChatServer(lambda asked: reply) as server:
        asked = ["eval", "m", "--server", server.url, *words, "environment.max_steps=2", "policy.options.retries=0"]
        return judged(f"reply {reply.status} {body[:300]}", invoke(asked, cwd))


def _changed(value: object, rng: Random) -> object:
    """The value with one part of it, at any depth, replaced or left out."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.8:
        keys = sorted(value) if isinstance(value, dict) else range(len(value))
        key = rng.choice(list(keys))
        if rng.random() < 0.2:
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            kept = [(name, part) for name, part in pairs if name != key]
            return dict(kept) if isinstance(value, dict) else [part for _, part in kept]
        changed = dict(value) if isinstance(value, dict) else list(value)
        changed[key] = _changed(value[key], rng)  # type: ignore[index]
        return changed
    return hostile_value(rng)


def shops(made: Path, run: Path, cwd: Path, rng: Random) -> Outcome:
    """Official catalogue files in which one value of one product is something else, or a file is damaged."""
    products = [{**RECORD, "asin": f"B{number}"} for number in range(4)]
    facts = {f"B{number}": dict(FACTS) for number in range(4)}
    changed = rng.choice([products[2], facts["B2"]])
    name = rng.choice(sorted(changed))
    changed[name] = hostile_value(rng)
    how = f"{name} = {json.dumps(changed[name])[:100]}"
    for file, content in (("items_shuffle_1000.json", products), ("items_ins_v2_1000.json", facts)):
        (cwd / file).write_text(json.dumps(content), encoding="utf-8")
    if rng.random() < 0.3:
        path = cwd / rng.choice(["items_shuffle_1000.json", "items_ins_v2_1000.json"])
        how += f", {path.name} {rng.choice(DAMAGES)(path, rng)}"
    return judged(f"shop with {how}", invoke(["play", "webshop", "--option", "data_dir=."], cwd))


def recipes(made: Path, run: Path, cwd: Path, rng: Random) -> Outcome:
    """A recipe in which one setting is something else."""
    settings = (run / "config.toml").read_text(encoding="utf-8").split("\n", 1)[1].splitlines()
    place = rng.choice([number for number, line in enumerate(settings) if " = " in line])
    name = settings[place].partition(" = ")[0]
    settings[place] = f"{name} = {json.dumps(hostile_value(rng))}".replace("null", '"null"')
    (cwd / "recipe.toml").write_text("\n".join(settings), encoding="utf-8")
    return judged(f"recipe with {settings[place][:200]}", invoke(["train", "recipe.toml", "--dry-run"], cwd))


def overrides(made: Path, run: Path, cwd: Path, rng: Random) -> Outcome:
    """Words of the command line that are none."""
    word = rng.choice([f"training.updates={hostile_text(rng)}", hostile_text(rng), f"{hostile_text(rng)}=1"])
    word = word.replace("\0", "")  # no process can be given one
    command = rng.choice([["train", str(run / "config.toml"), word, "--dry-run"], ["play", word], ["inspect", word]])
    return judged(f"{command[0]} {word[:200]!r}", invoke(command, cwd))


def models(made: Path, run: Path, cwd: Path, rng: Random) -> Outcome:
    """A model's folder, which nothing vouches for, with one damaged file."""
    shutil.copytree(run / "start", cwd / "model", ignore=shutil.ignore_patterns("contents.json", "warm_start.json"))
    path = rng.choice(sorted((cwd / "model").iterdir()))
    how = rng.choice(DAMAGES)(path, rng)
    words = ["eval", "model", "--env", "corridor:CorridorSuite", "-o", "e.json", "--split", "held_out", "--quiet"]
    played = invoke([*words, "environment.max_steps=3", "policy.max_response_tokens=4"], cwd)
    return judged(f"model with {path.name} {how}", played)


def words(made: Path, run: Path, cwd: Path, rng: Random) -> Outcome:
    """Names and texts that a terminal or a report might obey."""
    text = hostile_text(rng)
    rows = [dict(_sound_row(number), task_type=text, observation=text, action=text) for number in range(4)]
    (cwd / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    command = rng.choice([["advantages", "steps.jsonl"], ["inspect", "steps.jsonl"], ["play", "steps.jsonl"]])
    return judged(f"{command[0]} of {text[:100]!r}", invoke(command, cwd))


def judged(case: str, invocation: Invocation) -> Outcome:
    """Taken, refused in words that a terminal can be told, or failed."""
    if invocation.fault:
        return Outcome("failed", case, invocation.fault)
    if found := [mark for mark in _ESCAPES if mark in invocation.text]:
        return Outcome("failed", case, f"it tells the terminal {found[0]!r}: {invocation.text[-300:]!r}")
    if invocation.status and not invocation.err.strip():
        return Outcome("failed", case, f"status {invocation.status}, and nothing is said")
    return Outcome("error" if invocation.status else "same", case)


def _row(number: int, rng: Random) -> dict[str, object]:
    row = _sound_row(number)
    for name in rng.sample(sorted(row), rng.randint(1, 3)):
        if rng.random() < 0.2:
            del row[name]
        else:
            row[name] = hostile_value(rng)
    return row


def _sound_row(number: int) -> dict[str, object]:
    return {
        "group": "task",
        "trajectory": f"task#{number % 2}",
        "step": number // 2,
        "observation": "here",
        "action": "go",
        "reward": float(number == 3),
        "task_type": "corridor",
    }
