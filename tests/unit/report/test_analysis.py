import numpy as np
import pytest

from hgpo.report.analysis import analyse
from hgpo.report.comparison import shown_estimators
from hgpo.storage.discover import find_step_files
from hgpo.storage.reading import read_update


@pytest.fixture
def update(folder):
    return analyse(read_update(find_step_files(folder)[0]), shown_estimators(None), gamma=0.5)


def test_figures_count_trajectories(update):
    figures = update.figures
    assert (figures.success, figures.reward, figures.length) == (0.6, 0.6, 2.2)
    assert figures.first_return == pytest.approx((0.5 + 0 + 0.25 + 0.5 + 0) / 5)
    assert figures.summary.tasks == 2
    assert set(update.advantages) == {"paper", "verl", "pooled", "gigpo", "grpo", "mixed", "prompt"}


def test_sign_disagreement_counts_steps_where_both_speak(update):
    paper, grpo = (np.sign(update.advantages[key].values) for key in ("paper", "grpo"))
    both = paper * grpo
    assert update.figures.disagreement["paper grpo"] == (int((both != 0).sum()), int((both < 0).sum()))


def test_an_update_without_steps_is_refused(folder, write):
    write(folder / "00003.jsonl", [])
    with pytest.raises(ValueError, match="update 3 has no readable steps"):
        analyse(read_update(find_step_files(folder)[-1]), shown_estimators(None), gamma=0.5)
