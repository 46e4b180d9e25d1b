from hgpo.cli.play import MOST_SHOWN, step_text

STEP = {
    "step": 2,
    "prompt": "task : open the door\nnow : a hall",
    "response": "Thought: there it is.\nAction: open door",
    "action": "open door",
    "fault": "",
    "next_observation": "The door is open.",
    "reward": 10.0,
    "won": True,
}


def test_a_step_is_told_with_its_prompt_folded():
    assert step_text(STEP).splitlines() == [
        "── step 3 " + "─" * 50,
        "prompt       33 characters (--prompts shows them)",
        "response     Thought: there it is.",
        "             Action: open door",
        "action       open door",
        "observation  The door is open.",
        "reward       10, won",
    ]


def test_the_prompt_is_shown_in_full_where_it_is_asked_for():
    assert "prompt       task : open the door\n             now : a hall" in step_text(STEP, whole_prompt=True)


def test_what_went_wrong_is_said():
    told = step_text({**STEP, "fault": "no Action:", "won": False, "truncated": True, "prompt": None})
    assert "action       open door   [ill-formed: no Action:]" in told
    assert told.endswith("reward       10, cut at the step limit")
    assert "prompt" not in told


def test_what_is_not_stored_is_left_out_and_numbers_are_shown():
    told = step_text({"step": 0, "reward": 0.0, "action": 0, "next_observation": 0}).splitlines()
    assert told[1:] == ["action       0", "observation  0", "reward       0"]
    assert step_text({"step": 0, "reward": 0.0}).splitlines()[1:] == ["reward       0"]


def test_nothing_acts_on_the_terminal_and_nothing_is_endless():
    told = step_text(
        {**STEP, "response": "\x1b[2J" + "x" * 10_000, "fault": "\x1b]0;", "next_observation": "\u202eback"}
    )
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert f"… ({10_004:,} characters)" in told
    assert len(told) < MOST_SHOWN + 500
