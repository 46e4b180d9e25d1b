import pytest

from hgpo.envs.alfworld import alfworld_suite, generate_games


def test_a_variable_in_data_dir_is_filled_in(tmp_path, monkeypatch):
    generate_games(tmp_path / "games", games={"train": 6, "valid_seen": 0, "valid_unseen": 0})
    monkeypatch.setenv("MY_GAMES", str(tmp_path))
    assert len(alfworld_suite("$MY_GAMES/games").tasks("train")) == 6


def test_a_variable_that_is_not_set_is_named_with_the_remedy(monkeypatch):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"\$ALFWORLD_DATA.*not set; set it"):
        alfworld_suite("$ALFWORLD_DATA")
