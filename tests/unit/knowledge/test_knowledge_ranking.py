"""The ranking of results is a pure function of the candidates."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.adapters.knowledge.embedders import hashed_vector
from orga.activities.knowledge.arrival import arriving_item
from orga.activities.knowledge.ranking import Candidate, keyword_scores, merged_score, ranked_items
from orga.activities.knowledge.vectors import cosine
from orga.activities.knowledge.words import query_terms, stem, text_words
from orga.workflows.types.knowledge import KnowledgeItem
from tests.support.knowledge.items import T0, a_fact, a_text, query_for, texts


def a_candidate(item: KnowledgeItem, *, vector: Sequence[float] | None = None, **changes: Any) -> Candidate:
    return Candidate(arriving_item(item, T0).model_copy(update=changes), vector)


@dataclass(frozen=True)
class Said:
    """A query and a text, and the bounds of the share of the query that the text covers."""

    query: str
    text: str
    at_least: float
    at_most: float


COVERED = {
    "all words": Said("restart the payment service", "To restart: stop the payment service, start it.", 1, 1),
    "in other forms": Said("restarting services", "restart a service", 1, 1),
    "misspelt": Said("paymnet service", "the payment service", 0.8, 0.99),
    "half of them": Said("payment lorries", "payment", 0.4, 0.6),
    "none": Said("payment service", "the canteen is open", 0, 0),
    "stop words do not count": Said("what is the canteen", "the canteen", 1, 1),
    "nothing but stop words": Said("who is it", "it is who", 1, 1),
    "enough words of a long query": Said("a1 b2 c3 d4 e5 f6 g7 h8 i9 j10", "a1 b2 c3 d4 e5", 1, 1),
    "no words": Said("?!", "the canteen", 0, 0),
    "case and accents do not count": Said("büro", "Das BURO", 1, 1),
}


@pytest.mark.parametrize("case", COVERED.values(), ids=COVERED)
def test_the_score_is_the_share_of_covered_query_words(case: Said) -> None:
    [score] = keyword_scores(case.query, [case.text])
    assert case.at_least <= score <= case.at_most


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    texts_ = [*["the service is up"] * 9, "the gateway is up"]
    scores = keyword_scores("service gateway", texts_)
    assert scores[-1] > scores[0]


@pytest.mark.parametrize(("words", "vectors", "both"), [(0, 0, 0), (1, 0, 1), (0, 0.5, 0.5), (0.5, 0.5, 0.75)])
def test_words_or_vectors_alone_can_give_an_item_its_score(words: float, vectors: float, both: float) -> None:
    assert merged_score(words, vectors) == both


def test_vectors_find_an_item_without_matching_words() -> None:
    query = hashed_vector("schedulers")
    near = a_candidate(a_text("rescheduling"), vector=hashed_vector("rescheduling"))
    far = a_candidate(a_text("canteen"), vector=hashed_vector("canteen"))
    assert texts(ranked_items(query_for("schedulers", threshold=0.1), query, [far, near])) == ["rescheduling"]
    assert ranked_items(query_for("schedulers", threshold=0.1), None, [far, near]) == []


def test_vectors_of_different_lengths_have_no_similarity() -> None:
    assert cosine([1.0, 0.0], [1.0]) == 0


def test_equal_scores_are_ordered_by_confidence_then_by_age() -> None:
    facts = [
        a_candidate(a_fact("x", "is", "1", confidence=0.5)),
        a_candidate(a_fact("x", "has", "2", confidence=0.9)),
        a_candidate(a_fact("x", "was", "3", confidence=0.9), stored_at=T0 + timedelta(1)),
    ]
    assert [found.item.object for found in ranked_items(query_for("x"), None, facts)] == ["3", "2", "1"]


def test_a_contradicted_fact_comes_after_its_contradiction_even_if_it_fits_better() -> None:
    old, new = a_fact("the database", "is", "MySQL 5 on host a"), a_fact("the database", "is", "PostgreSQL")
    newer = a_candidate(new)
    candidates = [a_candidate(old, contradicted_by=newer.item.id), newer]
    found = ranked_items(query_for("database MySQL host", threshold=0), None, candidates)
    assert texts(found) == [new.text, old.text]
    assert found[0].score >= found[1].score


def test_a_fact_counts_in_full_if_its_contradiction_has_expired() -> None:
    [found] = ranked_items(query_for("x"), None, [a_candidate(a_fact("x", "is", "1"), contradicted_by="kexpired")])
    assert found.score == 1


def test_each_item_is_returned_once() -> None:
    assert len(ranked_items(query_for("x"), None, [a_candidate(a_text("x"))] * 3)) == 1


@pytest.mark.parametrize(
    ("word", "stemmed"),
    [
        *[("policies", "policy"), ("policy", "policy"), ("stopped", "stop"), ("stores", "stor"), ("storing", "stor")],
        *[("store", "stor"), ("classes", "class"), ("class", "class"), ("status", "status"), ("is", "is")],
        *[("running", "run"), ("thing", "thing"), ("вещи", "вещи")],
    ],
)
def test_common_endings_are_removed(word: str, stemmed: str) -> None:
    assert stem(word) == stemmed


def test_words_are_split_as_the_index_splits_them() -> None:
    assert text_words("snake_case, src/api-v2.PY Straße ÉTÉ") == [
        "snake",
        "case",
        "src",
        "api",
        "v2",
        "py",
        "strasse",
        "ete",
    ]
    assert query_terms("the the API api a") == ("api",)


TEXTS = st.text(alphabet="abcde ", max_size=40)


@given(query=TEXTS, items=st.lists(TEXTS.filter(str.strip), max_size=12), threshold=st.floats(0, 1))
def test_every_score_is_between_the_threshold_and_one(query: str, items: list[str], threshold: float) -> None:
    looked_for = query_for(query, threshold=threshold, limit=7)
    candidates = [a_candidate(a_text(text), vector=hashed_vector(text)) for text in items]
    found = ranked_items(looked_for, hashed_vector(query), candidates)
    assert len(found) <= 7
    assert all(threshold <= each.score <= 1 for each in found)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert found == ranked_items(looked_for, hashed_vector(query), candidates[::-1])


def test_texts_with_very_long_words_do_not_fill_the_memory() -> None:
    """A text may have 100,000 characters without a space, such as a picture that is written as text."""
    tracemalloc.start()
    try:
        for number in range(20):
            text = f"{number}{'x' * 50_000}"
            hashed_vector(f"{text} lamp")
            keyword_scores("lamp", [text])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000
