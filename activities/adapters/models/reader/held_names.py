"""Names of German questions, by the documents: there a noun beside a name has its capital, too."""

from collections.abc import Iterator
from dataclasses import replace

from orga.activities.adapters.models.reader.evidence import Evidence
from orga.activities.adapters.models.reader.question import Question, Term
from orga.activities.adapters.models.reader.words import parts, stem, stems, words


def with_held_names(question: Question, evidence: Evidence) -> Question:
    """Return the question whose runs of capitals are as much of a name as some line holds, two words at least.

    The words beside it are looked for as they stand, so that no name is met by a part of another. A run of which no two
    words are held stays whole, and is not found.
    """
    runs = [term for term in question.terms if term.is_run]
    if not runs:
        return question
    lines = [_row(stems(text)) for known in evidence.lines.values() for text in known.values()]
    terms = question.terms
    for run in runs:
        name = next((part for part in _parts_of(run) if any(_row(part.stems) in line for line in lines)), run)
        beside = set(run.stems) - set(name.stems)
        terms = tuple(name if term is run else _freed(term) if set(term.stems) <= beside else term for term in terms)
    return replace(question, terms=terms)


def _parts_of(run: Term) -> Iterator[Term]:
    """Yield the words of a run that stand side by side, the longest rows first."""
    said = parts(run.surface)
    for size in range(len(said), 1, -1):
        for start in range(len(said) - size + 1):
            surface = " ".join(said[start : start + size])
            yield replace(run, surface=surface, stems=tuple(map(stem, words(surface))), is_run=False)


def _freed(term: Term) -> Term:
    return replace(term, weight=1.0, is_exact=True)


def _row(found: list[str] | tuple[str, ...]) -> str:
    return f" {' '.join(found)} "
