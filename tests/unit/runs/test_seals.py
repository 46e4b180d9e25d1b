"""A text that is not what was written is told from one that is."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from hgpo.contents import ChangedFileError
from hgpo.runs.seals import check_stamp, sealed, stamped, unsealed

SETTINGS = '[run]\nname = "a"\n\n[training]\nlearning_rate = 1e-06\n'
PATH = Path("config.toml")


def test_a_document_comes_back_without_its_digest() -> None:
    document = {"b": 0.1, "a": [1, {"c": None}], "ü": "\u2028"}
    assert unsealed(PATH, sealed(document)) == document
    assert unsealed(PATH, document) == document  # edited by hand
    assert unsealed(PATH, dict(reversed(sealed(document).items()))) == document  # however it is laid out


@pytest.mark.parametrize("change", [{"a": 2}, {"b": 1}, {"sha256": "0" * 64}, {"sha256": None}])
def test_a_changed_document_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ChangedFileError, match=r"config\.toml: its content is not what was written"):
        unsealed(PATH, {**sealed({"a": 1}), **change})


def test_no_flipped_bit_of_stamped_settings_changes_one_in_silence() -> None:
    text = stamped(SETTINGS)
    check_stamp(PATH, text)
    check_stamp(PATH, SETTINGS)  # written by hand
    rng = Random(0)
    for _ in range(500):
        place, bit = rng.randrange(len(text)), rng.randrange(7)
        flipped = text[:place] + chr(ord(text[place]) ^ 1 << bit) + text[place + 1 :]
        if not flipped.endswith(SETTINGS):  # else it was in the comment
            with pytest.raises(ChangedFileError, match="Delete its first line if you changed it on purpose"):
                check_stamp(PATH, flipped)


def test_a_cut_text_is_refused() -> None:
    with pytest.raises(ChangedFileError):
        check_stamp(PATH, stamped(SETTINGS)[:-20])
