import pytest

from hgpo.utils.progress import duration, update_line

ROW = {"update": 3, "success": 0.5, "reward": 5.0, "clip_fraction": 0.02, "tokens_per_second": 1234.5}


def test_a_line_has_what_was_measured_and_nothing_else():
    assert update_line(ROW, 70) == "update    3/70  success 0.50  reward   5.00  clip 0.020  1,234 tokens/s"
    shown = update_line({**ROW, "kl": 0.01234, "group_size_0": 11.6, "group_size_1": 4.4}, 70)
    assert shown == "update    3/70  success 0.50  reward   5.00  KL 0.0123  clip 0.020 groups 12/4  1,234 tokens/s"


def test_levels_stand_in_their_order_and_the_episode_level_last():
    sizes = {f"group_size_{level}": float(level) for level in ("10", "2", "0")}
    assert " groups 0/2/10/99 " in update_line({"group_size_episode": 99.0, **ROW, **sizes}, 70)


def test_the_time_that_is_left_stands_at_the_end():
    assert update_line(ROW, 70, 130.0).endswith("1,234 tokens/s  2 min left")
    assert update_line(ROW, 3, 0.0) == update_line(ROW, 3)  # nothing is left


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (99, "99 s"), (130, "2 min"), (7200, "2.0 h")]
)
def test_a_duration_has_one_unit(seconds, said):
    assert duration(seconds) == said
