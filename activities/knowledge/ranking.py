"""The order of what a store has found: one rule for all of them, over candidates that each finds in its own way.

A score joins two: how much of the query an item's words cover, each word weighing by its rarity among the candidates
and words of nearly the same spelling counting for their likeness (rapidfuzz), and how alike the vectors are. Either
alone can carry an item: `1 - (1 - words) * (1 - vectors)`.
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
"""How many a store looks for by words, and as many by vectors, where no more are wanted."""
MAX_IN_FOLDER = 500
"""Items of one directory or language that a store looks at, the newest, where it goes by words."""
COMMON = 1_000
"""A word that so many items hold tells nothing where another one does."""
MAX_SEARCHED_TERMS = 5
"""A query that names more is covered by these many: talk of many things is no reason to recall none."""
MIN_LIKENESS = 85
"""Of 100: below it two words are different ones."""
CONTRADICTED_FACTOR = 0.5
"""What a fact's score is multiplied by once a newer one says otherwise."""


@dataclass(frozen=True)
class Candidate:
    """What a store has found, all of it visible to the reader and not expired."""

    item: StoredItem
    vector: Sequence[float] | None = None
    """Of the embedder in use; None where it has none of that."""


def candidate_limit(wish: Recall) -> int:
    """Return how many candidates a store looks for by words, and as many by vectors."""
    return max(MAX_CANDIDATES, wish.limit)


def separate_kinds(wish: Recall) -> list[tuple[KnowledgeKind, ...]]:
    """Return the kinds that a store looks for apart: the memories of many runs leave the others their places."""
    memories: tuple[KnowledgeKind, ...] = tuple(kind for kind in wish.kinds if kind == "memory")
    others: tuple[KnowledgeKind, ...] = tuple(kind for kind in wish.kinds if kind != "memory")
    return [kinds for kinds in (others, memories) if kinds]


def is_conventions_only(wish: Recall) -> bool:
    """Return whether conventions alone are looked for: where not all may come, the surest do, in their file's order."""
    return wish.kinds == ("convention",)


def ranked_items(wish: Recall, query: Sequence[float] | None, candidates: Sequence[Candidate]) -> list[Recalled]:
    """Return the best, no more than the limit and none below the threshold.

    A fact comes before a memory: what a run said at its end may have been a guess.

    Args:
        wish: What is looked for.
        query: The vector of its text; None ranks by words alone.
        candidates: Each once, with the facts that contradict any of them. Without words all score 1, the newest first.
    """
    unique = {candidate.item.id: candidate for candidate in candidates}
    scores = _scores(wish.text, query, list(unique.values()))
    scores = {id_: _score_after_newer(unique[id_].item, score, scores) for id_, score in scores.items()}
    scores |= _scores_after_clean([candidate.item for candidate in unique.values()], scores)
    found = [
        Recalled(item=unique[id_].item, score=score)
        for id_, score in scores.items()
        if score >= wish.threshold and unique[id_].item.kind in wish.kinds
    ]
    if not wish.text.strip():
        return sorted(found, key=_confidence_order)[: wish.limit]
    return sorted(_with_facts_first(found), key=_score_order)[: wish.limit]


def keyword_scores(text: str, texts: Sequence[str]) -> list[float]:
    """Return how much of the query each of these texts covers, from 0 to 1."""
    terms = query_terms(text)
    held = [frozenset(map(stem, text_words(each))) for each in texts]
    vocabulary = list(frozenset[str]().union(*held))
    likenesses = {term: _similar_words(stem(term), vocabulary) for term in terms}
    shares = [
        {term: max((like for word, like in alike.items() if word in words), default=0.0) for term, alike in pairs}
        for words in held
        for pairs in [likenesses.items()]
    ]
    weights = _term_weights(terms, shares)
    whole = sum(sorted(weights.values(), reverse=True)[:MAX_SEARCHED_TERMS])
    return [_coverage(share, weights, whole) for share in shares]


def merged_score(words: float, vectors: float) -> float:
    """Return the score of both, rounded so that the last digits of a machine or database change no order."""
    return round(1 - (1 - words) * (1 - vectors), 4)


def _scores(text: str, query: Sequence[float] | None, candidates: Sequence[Candidate]) -> dict[str, float]:
    if not text.strip():
        return {candidate.item.id: 1.0 for candidate in candidates}
    words = keyword_scores(text, [searchable_text(candidate.item) for candidate in candidates])
    return {
        candidate.item.id: merged_score(
            score, cosine(query, candidate.vector) if query is not None and candidate.vector is not None else 0.0
        )
        for candidate, score in zip(candidates, words, strict=True)
    }


def _score_after_newer(item: StoredItem, score: float, scores: dict[str, float]) -> float:
    """Put a fact behind the one that contradicts it, while that one holds (it may have expired)."""
    newer = scores.get(item.contradicted_by)
    return score if newer is None else min(round(score * CONTRADICTED_FACTOR, 4), newer)


def _scores_after_clean(items: Sequence[StoredItem], scores: dict[str, float]) -> dict[str, float]:
    """Return the scores of tainted facts that a clean one contradicts, whoever's it is: no more than that one's."""
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
    """Return what was found, no memory with a higher score than any of the facts."""
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
    """Return the words that a term may mean, and how alike they are."""
    found = process.extract(term, vocabulary, scorer=fuzz.ratio, score_cutoff=MIN_LIKENESS, limit=None)
    return {word: score / 100 for word, score, _ in found}


def _term_weights(terms: Sequence[str], shares: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return what each word weighs: the rarer the more, and one that nothing holds as the others do on average."""
    fitting = sum(1 for share in shares if any(share.values()))
    counts = {term: sum(1 for share in shares if share[term]) for term in terms}
    weights = {term: math.log(1 + (fitting + 1) / (count + 0.5)) for term, count in counts.items() if count}
    unseen = sum(weights.values()) / len(weights) if weights else 1.0
    return {term: weights.get(term, unseen) for term in terms}


def _coverage(share: dict[str, float], weights: dict[str, float], whole: float) -> float:
    return min(1.0, sum(weights[term] * like for term, like in share.items()) / whole) if whole else 0.0
