import pytest

from hgpo.storage.verl_dumps import truth


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        *((spelled, True) for spelled in (True, "True", "true", 1, "1", "1.0")),
        *((spelled, False) for spelled in (False, "False", "false", 0, "0", 0.0)),
    ],
)
def test_a_truth_may_be_written_in_any_of_these_ways(spelled, value):
    assert truth(spelled) is value


@pytest.mark.parametrize("odd", ["TRUE", "yes", "", None, [True], 2, "nan"])
def test_anything_else_is_no_truth(odd):
    with pytest.raises((TypeError, ValueError)):
        truth(odd)
