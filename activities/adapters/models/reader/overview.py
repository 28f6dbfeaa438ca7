"""The overview: the outline of each file that was read, its opening, and its most central passages."""

from collections import Counter

from orga.activities.adapters.models.reader.evidence import Evidence
from orga.activities.adapters.models.reader.files import is_named
from orga.activities.adapters.models.reader.lexicon import Lexicon
from orga.activities.adapters.models.reader.passages import Passage, passages_of
from orga.activities.adapters.models.reader.question import Question
from orga.activities.adapters.models.reader.quote import Quote, quote_of
from orga.activities.adapters.models.reader.words import is_content, stem, words

_FILES = 3
_CENTRAL = 2
_OPENING_WORDS = 6
"""A shorter first paragraph is a badge or a title."""
_FREQUENT = 12


def overview_quotes(question: Question, evidence: Evidence) -> list[tuple[str, list[Quote]]]:
    """Return, for each file, its outline in one line and its quotes in the order of the file."""
    paths = [path for path in evidence.read if path in evidence.lines]
    named = [path for path in paths if is_named(path, question.paths)]
    chosen = (named or paths)[:_FILES]
    central = _CENTRAL if len(chosen) > 1 else 2 * _CENTRAL
    return [_of_file(path, evidence, central) for path in chosen]


def _of_file(path: str, evidence: Evidence, central: int) -> tuple[str, list[Quote]]:
    passages = [p for p in passages_of(path, evidence.lines[path]) if not (p.is_heading or p.is_imports)]
    telling = [p for p in passages if len(words(p.text)) >= _OPENING_WORDS and not p.is_fenced]
    lexicon = _themes(passages)
    best = sorted(telling[1:], key=lambda p: (-_centrality(p, lexicon), p.first))[:central]
    quoted = sorted([*telling[:1], *best], key=lambda p: p.first)
    return _outline(passages), [quote_of(passage, lexicon) for passage in quoted]


def _themes(passages: list[Passage]) -> Lexicon:
    """Return the most frequent content words as a lexicon of their own."""
    counts = Counter(stem(word) for p in passages for word in words(p.text) if is_content(word) and len(word) > 2)
    common = counts.most_common(_FREQUENT)
    near = {one: [(place, 1.0)] for place, (one, _) in enumerate(common)}
    return Lexicon(near, (), tuple(float(count) for _, count in common))


def _centrality(passage: Passage, lexicon: Lexicon) -> float:
    found = [stem(word) for word in words(passage.text)]
    return sum(lexicon.weights[term] for term in lexicon.positions(found)) / (30 + len(found))


def _outline(passages: list[Passage]) -> str:
    titles = dict.fromkeys(title for passage in passages for title in passage.headings)
    return " · ".join(list(titles)[:8])
