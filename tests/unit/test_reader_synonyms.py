"""The offline reader finds what documents say in another word, where the small embeddings are installed."""

import pytest

from orga.activities.adapters.models.reader import synonyms
from orga.activities.adapters.models.reader.question import question_of
from orga.activities.adapters.models.reader.searches import in_words, queries_of
from orga.activities.adapters.models.reader.synonyms import near, with_synonyms
from orga.workflows.types.messages import Message
from tests.support.model.reading import Run, tools_over
from tests.support.programs.orga_command import ROOT

ASKED = "How long may a movie be kept?"
"""The documents say `film`."""


async def test_a_word_that_the_documents_do_not_hold_is_found_by_its_synonym() -> None:
    run = Run(ASKED, tools_over(ROOT / "examples" / "library"))
    answer = await run.to_the_end()
    assert "a film for one" in answer
    assert "`loans.md:3`" in answer


def test_names_and_numbers_have_no_synonyms() -> None:
    asked = with_synonyms(question_of([Message.of("user", "What did Mario pay for 12 movies?")]))
    alike = {term.surface: term.alike for term in asked.terms}
    assert "film" in alike["movies"]
    assert (alike["Mario"], alike["12"]) == ((), ())


def test_without_the_embeddings_a_word_is_looked_for_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "film" in near("movie")

    def not_installed(name: str) -> None: ...

    monkeypatch.setattr(synonyms, "find_spec", not_installed)
    near.cache_clear()
    try:
        assert near("movie") == ()
    finally:
        near.cache_clear()


def test_a_search_is_told_by_the_words_of_the_question_and_not_by_their_synonyms() -> None:
    asked = with_synonyms(question_of([Message.of("user", ASKED)]))
    queries = queries_of(asked, regex=True)
    assert queries[1] == r"mov[iy]|\b(cinema|film|keep|kept)"
    assert [in_words(query, asked) for query in queries] == ["two of movie, kept", "movie or kept"]
