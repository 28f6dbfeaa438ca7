"""Ranks what a store has found. All stores share this rule, but each finds its candidates in its own way.

A score joins two numbers: `1 - (1 - words) * (1 - vectors)`, so either alone can lift an item.

- `words`: the share of the query that an item's words cover. A rare word among the candidates has more weight. A word
  of similar spelling counts by its similarity (rapidfuzz).
- `vectors`: the similarity of the vectors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz, process

from orga.activities.knowledge.identity import folded_text, is_same_object
from orga.activities.knowledge.vectors import cosine
from orga.activities.knowledge.words import query_terms, searchable_text, stem, text_words
from orga.workflows.types.knowledge import KnowledgeKind, Recall, Recalled, StoredItem

MAX_CANDIDATES = 40
"""The least number of candidates that a store looks for by words, and again by vectors."""
MAX_IN_FOLDER = 500
"""The newest items of one directory or language that a store reads in a search by words."""
COMMON = 1_000
"""A word in so many items is ignored if the query has a rarer one."""
MAX_SEARCHED_TERMS = 5
"""So many matching words cover a longer query fully, so that a long conversation still recalls something."""
MIN_LIKENESS = 85
"""The least similarity, of 100, of two words that count as alike."""
CONTRADICTED_FACTOR = 0.5
"""Factor of a fact's score after a newer fact contradicts it."""


@dataclass(frozen=True)
class Candidate:
    """An item that a store has found. The reader may see it, and it has not expired."""

    item: StoredItem
    vector: Sequence[float] | None = None
    """Vector of the current embedder, or None."""


def candidate_limit(query: Recall) -> int:
    return max(MAX_CANDIDATES, query.limit)


def separate_kinds(query: Recall) -> list[tuple[KnowledgeKind, ...]]:
    """Return the kinds that a store searches separately, so that many memories do not crowd out the other kinds."""
    memories: tuple[KnowledgeKind, ...] = tuple(kind for kind in query.kinds if kind == "memory")
    others: tuple[KnowledgeKind, ...] = tuple(kind for kind in query.kinds if kind != "memory")
    return [kinds for kinds in (others, memories) if kinds]


def is_conventions_only(query: Recall) -> bool:
    """Return whether only conventions are wanted. Of these the surest come first, in their file's order."""
    return query.kinds == ("convention",)


def ranked_items(query: Recall, vector: Sequence[float] | None, candidates: Sequence[Candidate]) -> list[Recalled]:
    """Return the best items, within the limit and above the threshold.

    A fact comes before a memory, because a run's final answer may have been a guess.

    Args:
        vector: The vector of the query's text. None ranks by words only.
        candidates: Each once, with the facts that contradict any of them. For a query without words all score 1,
            and the newest come first.
    """
    unique = {candidate.item.id: candidate for candidate in candidates}
    items = {id_: candidate.item for id_, candidate in unique.items()}
    before = _scores(query.text, vector, list(unique.values()))
    scores = dict(before)
    for id_, item in items.items():
        if (newer := before.get(item.contradicted_by)) is not None:  # it may have expired
            scores[id_] = min(round(before[id_] * CONTRADICTED_FACTOR, 4), newer)
    scores |= _scores_after_clean(list(items.values()), scores)
    found = [
        Recalled(item=items[id_], score=score)
        for id_, score in scores.items()
        if score >= query.threshold and items[id_].kind in query.kinds
    ]
    if not query.text.strip():
        return sorted(found, key=_confidence_order)[: query.limit]
    return sorted(_with_facts_first(found), key=_score_order)[: query.limit]


def keyword_scores(text: str, texts: Sequence[str]) -> list[float]:
    """Return how much of the query each of these texts covers, from 0 to 1."""
    terms = query_terms(text)
    held = [frozenset(map(stem, text_words(each))) for each in texts]
    vocabulary = list(frozenset[str]().union(*held))
    alike = {term: _similar_words(stem(term), vocabulary) for term in terms}
    shares = [
        {term: max((like for word, like in alike[term].items() if word in words), default=0.0) for term in terms}
        for words in held
    ]
    weights = _term_weights(terms, shares)
    whole = sum(sorted(weights.values(), reverse=True)[:MAX_SEARCHED_TERMS]) or 1.0
    return [min(1.0, sum(weights[term] * like for term, like in share.items()) / whole) for share in shares]


def merged_score(words: float, vectors: float) -> float:
    """Return the joint score, rounded so that tiny differences between machines or databases change no order."""
    return round(1 - (1 - words) * (1 - vectors), 4)


def _scores(text: str, vector: Sequence[float] | None, candidates: Sequence[Candidate]) -> dict[str, float]:
    if not text.strip():
        return {candidate.item.id: 1.0 for candidate in candidates}
    words = keyword_scores(text, [searchable_text(candidate.item) for candidate in candidates])
    found: dict[str, float] = {}
    for each, score in zip(candidates, words, strict=True):
        similarity = cosine(vector, each.vector) if vector is not None and each.vector is not None else 0.0
        found[each.item.id] = merged_score(score, similarity)
    return found


def _scores_after_clean(items: Sequence[StoredItem], scores: dict[str, float]) -> dict[str, float]:
    """Limit the scores of tainted facts to that of a clean fact that contradicts them, whoever owns it."""
    clean: dict[tuple[str, str], list[StoredItem]] = {}
    facts = [item for item in items if item.kind == "fact"]
    for fact in facts:
        if not fact.provenance.taint:
            clean.setdefault(_claim_key(fact), []).append(fact)
    others = {fact.id: clean.get(_claim_key(fact), []) for fact in facts if fact.provenance.taint}
    return {
        fact.id: min(scores[fact.id], *(scores[other.id] for other in others[fact.id]))
        for fact in facts
        if others.get(fact.id) and not any(is_same_object(fact, other) for other in others[fact.id])
    }


def _claim_key(fact: StoredItem) -> tuple[str, str]:
    return folded_text(fact.subject), folded_text(fact.predicate)


def _with_facts_first(found: Sequence[Recalled]) -> list[Recalled]:
    """Return the found items. No memory has a higher score than any fact."""
    most = min((each.score for each in found if each.item.kind == "fact"), default=1.0)
    return [
        Recalled(item=each.item, score=most) if each.item.kind == "memory" and each.score > most else each
        for each in found
    ]


def _score_order(found: Recalled) -> tuple[object, ...]:
    item = found.item
    is_below = item.kind == "memory", bool(item.contradicted_by), bool(item.provenance.taint)
    return -found.score, *is_below, *_confidence_order(found)


def _confidence_order(found: Recalled) -> tuple[object, ...]:
    item = found.item
    return bool(item.contradicted_by), -item.confidence, -item.stored_at.timestamp(), item.id


def _similar_words(term: str, vocabulary: Sequence[str]) -> dict[str, float]:
    """Return the words that a term may mean, with their similarity."""
    found = process.extract(term, vocabulary, scorer=fuzz.ratio, score_cutoff=MIN_LIKENESS, limit=None)
    return {word: score / 100 for word, score, _ in found}


def _term_weights(terms: Sequence[str], shares: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the weight of each word. Rarer words weigh more. A word that no item has gets the average weight."""
    fitting = sum(1 for share in shares if any(share.values()))
    counts = {term: sum(1 for share in shares if share[term]) for term in terms}
    weights = {term: math.log(1 + (fitting + 1) / (count + 0.5)) for term, count in counts.items() if count}
    unseen = sum(weights.values()) / len(weights) if weights else 1.0
    return {term: weights.get(term, unseen) for term in terms}
