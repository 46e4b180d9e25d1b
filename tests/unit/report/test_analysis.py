import numpy as np
import pytest

from hgpo.report.analysis import analyse
from hgpo.report.estimator_comparison import NO_TRAINING, Training, report_estimators
from hgpo.storage.discover import find_step_files
from hgpo.storage.reading import read_batch
from house import write_rows


@pytest.fixture
def update(folder):
    return analyse(read_batch(find_step_files(folder)[0]), report_estimators(NO_TRAINING), gamma=0.5)


def test_figures_count_trajectories(update):
    figures = update.metrics
    assert (figures.success, figures.reward, figures.length) == (0.6, 0.6, 2.2)
    assert figures.first_return == pytest.approx((0.5 + 0 + 0.25 + 0.5 + 0) / 5)
    assert figures.summary.tasks == 2
    assert set(update.advantages) == {"paper", "verl", "pooled", "gigpo", "grpo", "mixed", "prompt"}


def test_sign_disagreement_counts_steps_where_both_speak(update):
    paper, grpo = (np.sign(update.advantages[key].values) for key in ("paper", "grpo"))
    both = paper * grpo
    assert update.metrics.disagreement["paper grpo"] == (int((both != 0).sum()), int((both < 0).sum()))


def test_columns_that_the_followed_estimator_needs_are_asked_for_by_name(folder, rows):
    """One that is only set beside it is left out instead."""
    path = write_rows(
        folder.parent / "bare" / "1.jsonl", [{k: v for k, v in row.items() if k != "prompt"} for row in rows]
    )
    steps = read_batch(find_step_files(path)[0])
    assert "prompt" not in analyse(steps, report_estimators(NO_TRAINING), gamma=0.5).advantages
    with pytest.raises(ValueError, match="'hgpo' with context='prompt' needs the column prompt"):
        analyse(steps, report_estimators(Training("hgpo", {"context": "prompt"})), gamma=0.5)
