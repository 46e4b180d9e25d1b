from hypothesis import given
from hypothesis import strategies as st

from hgpo.report.texts import TextStore


@given(st.lists(st.none() | st.text(alphabet="ab\n\r ", max_size=6)))
def test_every_text_can_be_put_together_again(texts):
    store = TextStore()
    numbers = [store.add(text) for text in texts]
    start, line = store.encoded()
    lines = store.lines
    for number, text in zip(numbers, texts, strict=True):
        found = "\n".join(lines[at] for at in line[start[number] : start[number + 1]]) if number else None
        assert found == text


def test_equal_texts_and_equal_lines_are_kept_once():
    store = TextStore()
    assert [store.add(text) for text in ("a\nb", None, "a\nc", "a\nb")] == [1, 0, 2, 1]
    assert store.lines == ["a", "b", "c"]
    assert [array.tolist() for array in store.encoded()] == [[0, 0, 2, 4], [0, 1, 0, 2]]
