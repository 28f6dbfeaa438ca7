"""Ranks the items that a store has found. Each store finds them in its own way, but all rank them by this rule.

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

CANDIDATES = 40
"""Items that a store looks for by words, and also by vectors. If the query asks for more items, it looks for more."""
MAX_IN_FOLDER = 500
"""Items of one directory or language that a search by words reads: the newest ones."""
COMMON = 1_000
"""Items with the same word. If so many have it, it is ignored, unless the query has no rarer word."""
MAX_SEARCHED_TERMS = 5
"""Words. An item with so many of a query's rarest words covers a longer query fully.

So a long conversation still recalls something.
"""
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
    return max(CANDIDATES, query.limit)


def separate_kinds(query: Recall) -> list[tuple[KnowledgeKind, ...]]:
    """Return the kinds that a store searches separately, so that many memories do not crowd out the other kinds."""
    memories: tuple[KnowledgeKind, ...] = tuple(kind for kind in query.kinds if kind == "memory")
    others: tuple[KnowledgeKind, ...] = tuple(kind for kind in query.kinds if kind != "memory")
    return [kinds for kinds in (others, memories) if kinds]


def is_conventions_only(query: Recall) -> bool:
    """Return whether the query asks only for conventions. Stores sort these by confidence, then as in their file."""
    return query.kinds == ("convention",)


def ranked_items(query: Recall, vector: Sequence[float] | None, candidates: Sequence[Candidate]) -> list[Recalled]:
    """Return the best items, within the limit and above the threshold.

    A fact comes before a memory, because a run's final answer may have been a guess.

    Args:
        vector: The vector of the query's text. None ranks by words only.
        candidates: The found items, and the facts that contradict any of them.

    For a query without words, all items score 1. Those with the highest confidence come first, then the newest.
    """
    unique = {candidate.item.id: candidate for candidate in candidates}
    items = {id_: candidate.item for id_, candidate in unique.items()}
    own_scores = _scores(query.text, vector, list(unique.values()))
    scores = dict(own_scores)
    for id_, item in items.items():
        newer_score = own_scores.get(item.contradicted_by)
        if newer_score is not None:  # None if no fact contradicts the item, or the fact has expired
            scores[id_] = min(round(own_scores[id_] * CONTRADICTED_FACTOR, 4), newer_score)
    scores |= _limited_scores(list(items.values()), scores)
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
    stems = [frozenset(map(stem, text_words(each))) for each in texts]
    vocabulary = list(frozenset[str]().union(*stems))
    similar = {term: _similar_words(stem(term), vocabulary) for term in terms}

    def term_score(term: str, words: frozenset[str]) -> float:
        return max((similarity for word, similarity in similar[term].items() if word in words), default=0.0)

    term_scores = [{term: term_score(term, words) for term in terms} for words in stems]
    weights = _term_weights(terms, term_scores)
    whole = sum(sorted(weights.values(), reverse=True)[:MAX_SEARCHED_TERMS]) or 1.0
    return [min(1.0, sum(weights[term] * score for term, score in scores.items()) / whole) for scores in term_scores]


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


def _limited_scores(items: Sequence[StoredItem], scores: dict[str, float]) -> dict[str, float]:
    """Return new scores of the tainted facts that clean facts contradict: none exceeds a score of these clean facts."""
    clean: dict[tuple[str, str], list[StoredItem]] = {}
    facts = [item for item in items if item.kind == "fact"]
    for fact in facts:
        if not fact.provenance.taint:
            clean.setdefault(_claim_key(fact), []).append(fact)
    limited: dict[str, float] = {}
    for fact in facts:
        others = clean.get(_claim_key(fact), []) if fact.provenance.taint else []
        if others and not any(is_same_object(fact, other) for other in others):
            limited[fact.id] = min(scores[fact.id], *(scores[other.id] for other in others))
    return limited


def _claim_key(fact: StoredItem) -> tuple[str, str]:
    return folded_text(fact.subject), folded_text(fact.predicate)


def _with_facts_first(found: Sequence[Recalled]) -> list[Recalled]:
    """Return the found items. The scores of memories are limited to the lowest score of a fact."""
    limit = min((each.score for each in found if each.item.kind == "fact"), default=1.0)
    return [
        Recalled(item=each.item, score=limit) if each.item.kind == "memory" and each.score > limit else each
        for each in found
    ]


def _score_order(found: Recalled) -> tuple[object, ...]:
    item = found.item
    demotions = item.kind == "memory", bool(item.contradicted_by), bool(item.provenance.taint)
    return -found.score, *demotions, *_confidence_order(found)


def _confidence_order(found: Recalled) -> tuple[object, ...]:
    item = found.item
    return bool(item.contradicted_by), -item.confidence, -item.stored_at.timestamp(), item.id


def _similar_words(term: str, vocabulary: Sequence[str]) -> dict[str, float]:
    found = process.extract(term, vocabulary, scorer=fuzz.ratio, score_cutoff=MIN_LIKENESS, limit=None)
    return {word: score / 100 for word, score, _ in found}


def _term_weights(terms: Sequence[str], term_scores: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the weight of each word. Rarer words weigh more. A word that no item has gets the average weight."""
    matches = sum(1 for scores in term_scores if any(scores.values()))
    counts = {term: sum(1 for scores in term_scores if scores[term]) for term in terms}
    weights = {term: math.log(1 + (matches + 1) / (count + 0.5)) for term, count in counts.items() if count}
    unseen = sum(weights.values()) / len(weights) if weights else 1.0
    return {term: weights.get(term, unseen) for term in terms}
