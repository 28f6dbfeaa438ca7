"""Documents are split at headings, paragraphs and sentences, and no text is lost."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.knowledge.chunks import chunks

GUIDE = """Before all headings.

# Guide

Intro.

## Install

Run this:

```sh
# not a heading
make setup
```

## Use ##

Use it.

# Other
"""


def test_a_chunk_begins_at_a_heading_and_records_the_headings_above() -> None:
    assert [(chunk.headings, chunk.body) for chunk in chunks(GUIDE)] == [
        ((), "Before all headings."),
        (("Guide",), "Intro."),
        (("Guide", "Install"), "Run this:\n\n```sh\n# not a heading\nmake setup\n```"),
        (("Guide", "Use"), "Use it."),
    ]


def test_the_text_of_a_chunk_begins_with_its_headings() -> None:
    assert chunks(GUIDE)[3].text == "Guide > Use\nUse it."
    assert chunks("plain")[0].text == "plain"


def test_short_paragraphs_are_joined_and_long_ones_split_between_sentences() -> None:
    sentence = "This sentence has some forty characters."
    text = f"one\n\ntwo\n\n{' '.join([sentence] * 10)}"
    found = chunks(text, limit=200, overlap=0)
    assert found[0].body.startswith("one\n\ntwo\n\nThis")
    assert all(chunk.body.endswith(".") for chunk in found)
    assert all(len(chunk.body) <= 200 for chunk in found)


def test_a_chunk_repeats_the_last_sentence_of_the_previous_one() -> None:
    text = " ".join(f"Sentence number {n} says something of its own." for n in range(20))
    found = chunks(text, limit=200, overlap=60)
    for before, after in pairwise(found):
        first = after.body.partition("\n")[0]
        assert first.startswith("Sentence number")
        assert before.body.endswith(first)


def test_a_very_long_word_is_split() -> None:
    found = chunks("x" * 1000, limit=100, overlap=0)
    assert [len(chunk.body) for chunk in found] == [100] * 10


@pytest.mark.parametrize("text", ["", " \n\n \t", "# only\n## headings"])
def test_a_text_without_content_has_no_chunks(text: str) -> None:
    assert chunks(text) == []


@pytest.mark.parametrize(("limit", "overlap"), [(99, 0), (200, 100), (200, -1)])
def test_impossible_sizes_are_refused(limit: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="cannot cut a text"):
        chunks("text", limit=limit, overlap=overlap)


LINES = st.lists(
    st.one_of(
        st.text(alphabet="ab .!?\u3002#`~", max_size=300),
        st.sampled_from(["", "", "# a", "### b", "```", "~~~", "word " * 60, "#"]),
    ),
    max_size=30,
)


@given(lines=LINES, overlap=st.sampled_from([0, 1, 30, 49]))
def test_no_text_is_lost_and_no_chunk_is_too_long(lines: list[str], overlap: int) -> None:
    text = "\n".join(lines)
    found = chunks(text, limit=100, overlap=overlap)
    assert [chunk.number for chunk in found] == list(range(len(found)))
    assert all(chunk.body.strip() and len(chunk.body) <= 100 + overlap + 1 for chunk in found)
    if overlap == 0:
        letters = "".join(chunk.body for chunk in found)
        for letter in "ab":
            in_headings = sum(line.count(letter) for line in text.split("\n") if line.startswith("#"))
            assert text.count(letter) - in_headings <= letters.count(letter) <= text.count(letter)
