"""Windows: the line ranges worth reading next, around hits that were found and not read yet."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from orga.activities.adapters.models.reader.evidence import Evidence
from orga.activities.adapters.models.reader.passages import Passage
from orga.activities.adapters.models.reader.ranking import Ranked

_ABOVE, _BELOW, _BELOW_HEADING = 12, 24, 40
"""Lines read around a hit; a heading's text follows it."""
_CHARACTERS = 6000
"""What one window may hold, by the length of the lines that are known."""
_HEADING_BONUS, _FINDING_BONUS = 1.6, 3.0
"""Of a hit on a heading, whose text follows, and of one that seems to answer as it stands."""
_REST = 0.25
"""What further hits in a window count beside the best one."""


@dataclass(frozen=True)
class Window:
    """Lines `first` to `last` of a file, to be read."""

    path: str
    first: int
    last: int
    score: float
    terms: frozenset[int] = frozenset()
    """Places of the terms that it is known to hold."""

    def holds(self, passage: Passage) -> bool:
        """Whether a passage lies inside."""
        return self.path == passage.path and self.first <= passage.first and passage.last <= self.last


def windows_of(ranked: Iterable[Ranked], evidence: Evidence) -> list[Window]:
    """Return windows around the unread passages, best first."""
    windows: list[Window] = []
    for one in ranked:
        passage = one.passage
        if passage.path in evidence.context or evidence.read.get(passage.path, set()).issuperset(_numbers(passage)):
            continue
        home = next((i for i, window in enumerate(windows) if window.holds(passage)), None)
        if home is None:
            windows.append(_around(one, evidence))
        else:
            score, terms = windows[home].score + _REST * one.score, windows[home].terms | one.terms
            first = _around(one, evidence).first if passage.is_row else windows[home].first
            windows[home] = replace(windows[home], first=min(first, windows[home].first), score=score, terms=terms)
    return sorted(windows, key=lambda window: (-window.score, window.path, window.first))


def _around(ranked: Ranked, evidence: Evidence) -> Window:
    passage = ranked.passage
    room = _lines_that_fit(evidence.lines[passage.path].values())
    below = _BELOW_HEADING if passage.is_heading else _BELOW
    first = max(1, passage.first - min(_ABOVE, room // 3))
    last = min(passage.last + below, first + room, evidence.totals.get(passage.path, passage.last + below))
    known = evidence.read.get(passage.path, set())
    first = next(n for n in range(first, passage.first + 1) if n == passage.first or n not in known)
    last = next(n for n in range(last, passage.last - 1, -1) if n <= passage.last or n not in known)
    bonus = _HEADING_BONUS if passage.is_heading else _FINDING_BONUS if ranked.finding is not None else 1.0
    return Window(passage.path, first, max(last, passage.last), ranked.score * bonus, ranked.terms)


def _lines_that_fit(known: Iterable[str]) -> int:
    lengths = [len(text) for text in known if text.strip()]
    usual = max(20, sum(lengths) // max(1, len(lengths)))
    return max(6, _CHARACTERS // usual)


def _numbers(passage: Passage) -> range:
    return range(passage.first, passage.last + 1)
