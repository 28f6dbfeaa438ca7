"""The question: what the conversation asks, as weighted terms, named files and the kind of answer wanted."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from orga.activities.adapters.models.reader.framed import asked_by_steps, asked_in
from orga.activities.adapters.models.reader.languages import TASK_WORDS, Language, language_of
from orga.activities.adapters.models.reader.names import names_in
from orga.activities.adapters.models.reader.words import folded, is_content, parts, stem, words
from orga.workflows.types.goals.turns import turn_asked_for
from orga.workflows.types.messages import Message

Wanted = Literal["passages", "overview", "listing"]

_QUOTED = re.compile(r"`([^`\n]{2,60})`|\"([^\"\n]{2,60})\"|“([^”\n]{2,60})”")
_COMPOUND = re.compile(r"\b\d+(?:[.,:]\d+)+\b|\b\w+(?:[-_.]\w+)+\b|\b[a-z]+[A-Z]\w*\b|\b[A-Z][a-z0-9]+[A-Z]\w*\b")
_PATH = re.compile(r"(?<![\w/])[\w.-]*(?:/[\w.-]+)*[\w-]\.[A-Za-z][A-Za-z0-9]{0,4}\b(?!\()")
_NAMED = re.compile(r"\b(?:README|CHANGELOG|CONTRIBUTING|ARCHITECTURE|SECURITY|LICENSE|Makefile|Dockerfile)\b(?!\.)")
_EXTENSION = re.compile(
    r"\.(adoc|cc?|cfg|cpp|cs|css|csv|exs?|go|h|hpp|html?|ini|java|jsx?|json|kt|lock|log|lua|md|php|proto|py|rb|rs|rst|sh|sql"
    r"|svelte|swift|tex|toml|tsx?|txt|vue|xml|ya?ml)$",
    re.I,
)
_REPLACES = re.compile(r"\b(instead|rather|actually|forget (?:it|that|the)|never ?mind|drop (?:it|that))\b", re.I)
_LABEL = re.compile(r"^\s*\[[^\]\n]{1,60}\]:?\s*")
_OVERVIEW = re.compile(r"\b(summar\w*|overview|outline|gist|what is (?:it|this) about)\b", re.I)
_QUANTITY = re.compile(
    r"\b(how (?:long|many|much|often|big|large|high|old|far|late)"
    r"|wie (?:lange|viele?|oft|gro(?:ß|ss)|hoch|alt|weit))\b",
    re.I,
)
_PRICE = re.compile(
    r"\bwhat (?:do|does|did|will|would)\b[^.?]*\bcost\b|\bwas kost\w+|\bwas (?:hat|haben)\b[^.?]*\bgekostet\b", re.I
)
"""What asks how much without saying so."""
_AND = re.compile(r"\b(?:and|und)\b|\?\s", re.I)
_BACK = re.compile(
    r"\b(?:it|its|he|him|his|she|her|they|them|their|this|that|er|es|sie|ihn|ihm|ihr|ihre|sein|seine|dessen|deren)\b",
    re.I,
)
"""What refers to the name that was said before."""
_PAIR = 2
"""Words of a name that has no more."""
_OWN = 2
"""Words that each part of a question has, where it asks two things."""
_LISTING = re.compile(r"\b(?:list|which|what|show)\b.{0,30}\b(?:files|documents|folders?|directory)\b", re.I)


@dataclass(frozen=True)
class Term:
    """Something to look for: one stem, or the stems of an identifier or phrase in a row."""

    stems: tuple[str, ...]
    surface: str
    weight: float = 1.0
    is_exact: bool = False
    """A name or a number: nothing stands for it, and no passage answers without it."""
    is_added: bool = False
    """Of guidance that was added to the question: it says where to look, and answers need not hold it."""
    is_run: bool = False
    """A row of German capitals, which may be a name and the nouns beside it."""
    alike: tuple[str, ...] = ()
    """Words that mean nearly the same."""


@dataclass(frozen=True)
class Question:
    """What is asked."""

    text: str
    terms: tuple[Term, ...] = ()
    pairs: tuple[tuple[Term, Term], ...] = ()
    """Neighbouring single words, which mean more together."""
    paths: tuple[str, ...] = ()
    """Files that it names."""
    wanted: Wanted = "passages"
    wants_number: bool = False
    """Whether it asks how many, how much, how long, what something costs."""


def question_of(messages: Iterable[Message]) -> Question:
    """Return the question of a conversation: the first user message, refined or replaced by later guidance.

    Guidance replaces what came before when it says so ("instead") or follows an answer. Pinned messages after the
    first are material to read, not questions.
    """
    asked: list[str] = []
    answered = False
    for message in messages:
        if message.role == "assistant":
            answered = not message.calls
        elif message.role == "user" and turn_asked_for(message.text):
            asked = asked_by_steps(message.text) or asked
        elif message.role == "user" and (not asked or not message.pinned):
            for text in filter(None, asked_in(_LABEL.sub("", message.text).strip())):
                asked = [text] if answered or _REPLACES.search(text) else [*asked, text]
                answered = False
    return _question(asked)


def _question(asked: list[str]) -> Question:
    text = "\n".join(asked)
    paths = _paths(text)
    rest = text
    for path in paths:
        rest = rest.replace(path, " ")
    language = language_of(words(text))
    rest = _QUANTITY.sub(" ", rest)
    latest = _words_of(asked[-1]) if len(asked) > 1 else frozenset[str]()
    added = frozenset(words("\n".join(asked[1:]))) - _words_of(asked[0] if asked else "")
    names = names_in(rest, language)
    singles = _singles(rest, latest, added, language, {folded(name) for name in names})
    terms = _distinct([*_named(names, language), *_compounds(rest), *singles])
    phrases = {term.stems for term in terms}
    pairs = tuple((a, b) for a, b in pairwise(singles) if a.stems != b.stems and a.stems + b.stems not in phrases)
    return Question(text, terms, pairs, paths, _wanted(text, terms), _wants_number(text))


def _paths(text: str) -> tuple[str, ...]:
    paths = [path for path in _PATH.findall(text) if _EXTENSION.search(path)]
    return tuple(dict.fromkeys([*paths, *_NAMED.findall(text)]))


def _wanted(text: str, terms: tuple[Term, ...]) -> Wanted:
    if not terms and _LISTING.search(text) and not _OVERVIEW.search(text):
        return "listing"
    return "overview" if not terms else "passages"


def _wants_number(text: str) -> bool:
    return any(asks.search(text) for asks in (_QUANTITY, _PRICE))


def _words_of(text: str) -> frozenset[str]:
    return frozenset(words(text))


def _singles(
    text: str, latest: frozenset[str], added: frozenset[str], language: Language, names: set[str]
) -> list[Term]:
    found: list[Term] = []
    for part in parts(text):
        word = folded(part)
        if is_content(word, language) and word not in TASK_WORDS[language]:
            weight = 1.5 if word in latest else 1.0
            is_exact = word in names or stem(word).isdigit()
            found.append(Term((stem(word),), part, weight, is_exact, is_added=word in added))
    return found


def _named(names: Iterable[str], language: Language) -> list[Term]:
    rows = [(name, tuple(map(stem, words(name)))) for name in names]
    return [
        Term(row, name, 2.0, is_exact=True, is_run=language == "de" and len(row) > _PAIR)
        for name, row in rows
        if len(row) > 1
    ]


def _compounds(text: str) -> list[Term]:
    quoted = [next(part for part in groups if part) for groups in _QUOTED.findall(text)]
    found = [*quoted, *_COMPOUND.findall(text)]
    named = [(surface, tuple(words(surface))) for surface in found]
    return [
        Term(tuple(map(stem, part)), surface, 2.0, is_exact=_is_identifier(surface))
        for surface, part in named
        if len(part) > 1
    ]


def _is_identifier(surface: str) -> bool:
    return "_" in surface or surface[0].isdigit()


def _distinct(terms: list[Term]) -> tuple[Term, ...]:
    inside = {one for term in terms if len(term.stems) > 1 for one in term.stems}
    kept: dict[tuple[str, ...], Term] = {}
    for term in terms:
        part_of_compound = len(term.stems) == 1 and term.stems[0] in inside
        kept.setdefault(term.stems, replace(term, weight=term.weight / 2, is_exact=False) if part_of_compound else term)
    return tuple(kept.values())


def parts_of(question: Question) -> tuple[Question, ...]:
    """Return the two questions of one that asks "how is it made and who pays for it"; none of any other.

    Each has two words at least. Names and numbers of the first go with the second where that refers back and has none.
    """
    texts = _AND.split(question.text, maxsplit=1)
    halves = [[term for term in question.terms if _is_in(term, text)] for text in texts]
    if len(halves) < _OWN or any(sum(not term.is_exact for term in half) < _OWN for half in halves):
        return ()
    named = [term for term in halves[0] if term.is_exact]
    if _BACK.search(texts[1]) and not any(term.is_exact for term in halves[1]):
        halves[1] = [*named, *halves[1]]
    return tuple(
        replace(question, text=text, terms=tuple(half), wants_number=_wants_number(text))
        for text, half in zip(texts, halves, strict=True)
    )


def _is_in(term: Term, text: str) -> bool:
    return set(map(stem, words(term.surface))) <= set(map(stem, words(text)))
