"""Files: which kinds are preferred, and which listed ones a question means by name."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from orga.activities.adapters.models.reader.lexicon import relatives
from orga.activities.adapters.models.reader.question import Question
from orga.activities.adapters.models.reader.words import stems

_TESTS = re.compile(r"(^|/)(tests?|specs?|fixtures?|__tests__)/|(^|/)test_|_test\.|\.(spec|test)\.", re.I)
_GENERATED = re.compile(
    r"(^|/)(node_modules|dist|vendor|\.git|\.venv)/|\.(lock|min\.js|map|svg|csv)$|lock\.json$", re.I
)
_DOCS = re.compile(r"\.(md|markdown|mdx|rst|txt|adoc)$", re.I)
_BINARY = re.compile(r"\.(png|jpe?g|gif|ico|pdf|zip|gz|whl|so|dll|exe|woff2?|ttf|mp[34]|gguf|pyc|db|sqlite)$", re.I)
_FIRST = {"readme": 0.6, "index": 0.3, "overview": 0.3, "introduction": 0.3, "architecture": 0.3}
"""What speaks for documents that introduce the others."""


def prior(path: str) -> float:
    """Return how much a kind of file is preferred: documents, then code, then tests, then what machines wrote."""
    if _GENERATED.search(path):
        return 0.5
    if _TESTS.search(path):
        return 0.8
    return 1.0 if _DOCS.search(path) else 0.95


def is_named(path: str, named: Iterable[str]) -> bool:
    """Whether a question names this file: by its path, the end of it, or its name without the extension."""
    stem = PurePosixPath(path).stem.lower()
    return any(path == one or path.endswith("/" + one) or stem == one.lower() for one in named)


def likely_files(question: Question, listing: Iterable[str]) -> list[str]:
    """Return the listed files in the order to read them when nothing but their names is known."""
    readable = [path for path in listing if not _BINARY.search(path)]
    return sorted(readable, key=lambda path: (-_likeliness(path, question), path.count("/"), path))


def name_matches(question: Question, path: str) -> float:
    """Return the weight of the terms that a path's own words match."""
    found = set(stems(path))
    singles = [term for term in question.terms if len(term.stems) == 1]
    return sum(term.weight * max(relatives(term.stems[0], found).values(), default=0.0) for term in singles)


def _likeliness(path: str, question: Question) -> float:
    named = 10.0 * is_named(path, question.paths)
    kind = prior(path) * (1.5 if _DOCS.search(path) else 1.0)
    first = _FIRST.get(PurePosixPath(path).stem.lower(), 0.0) if _DOCS.search(path) else 0.0
    return named + name_matches(question, path) + kind + first
