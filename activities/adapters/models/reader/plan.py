"""The plan: which tools to call next, or none when the evidence is enough or there is nothing left to try."""

from collections.abc import Iterable

from orga.activities.adapters.models.reader.evidence import Evidence, fingerprint
from orga.activities.adapters.models.reader.files import is_named, likely_files
from orga.activities.adapters.models.reader.lexicon import Lexicon
from orga.activities.adapters.models.reader.question import Question
from orga.activities.adapters.models.reader.ranking import Ranked, ranked_passages
from orga.activities.adapters.models.reader.searches import loose_queries, queries_of
from orga.activities.adapters.models.reader.spelling import respelled
from orga.activities.adapters.models.reader.toolbox import Toolbox
from orga.activities.adapters.models.reader.windows import Window, windows_of
from orga.workflows.types.messages import ToolCall

CALLS, _BY_NAMES = (3, 2, 1), (1, 4, 1)
"""Of each turn with tools, at most: six for one question. By the names of files, where nothing can be searched."""
_HEADS = 3
"""Files whose beginnings are read for an overview."""
_HITS = 120
_HEAD = 120
"""Lines read of a file of which nothing is known."""
_WORTH = 0.45
"""Part of the best score that a window must have to be read at all."""


def next_calls(question: Question, evidence: Evidence, toolbox: Toolbox, turn: int) -> tuple[ToolCall, ...]:
    """Return the calls to make in this turn, without ids; calls already made are not among them."""
    if turn >= len(CALLS) or not question.text:
        return ()
    offered = toolbox.without(frozenset(name for name in toolbox.arguments if evidence.is_off(name)))
    most = CALLS if offered.has("search_text") and question.wanted == "passages" else _BY_NAMES
    return _wished(question, evidence, offered, turn)[: most[turn]]


def _wished(question: Question, evidence: Evidence, offered: Toolbox, turn: int) -> tuple[ToolCall, ...]:
    if question.wanted == "listing":
        return _new(_listing(offered), evidence)
    if question.wanted == "overview":
        heads = _heads(question, evidence, offered, _HEADS) if turn < 2 else []
        return _new(_listing(offered), evidence) or _new(heads, evidence)
    opening = _new(_searches(question, offered) or _listing(offered), evidence) if turn == 0 else ()
    return opening or _deeper(question, evidence, offered)


def any_call(question: Question, toolbox: Toolbox) -> tuple[ToolCall, ...]:
    """Return some call for a request that insists on one."""
    guesses = [*_listing(toolbox), *_searches(question, toolbox)]
    if toolbox.has("read_file"):
        guesses.append(toolbox.call("read_file", path=next(iter(question.paths), "README.md")))
    return tuple(guesses[:1])


def _deeper(question: Question, evidence: Evidence, toolbox: Toolbox) -> tuple[ToolCall, ...]:
    ranked, lexicon = ranked_passages(question, evidence)
    if _is_enough(ranked, evidence):
        return ()
    corrected, corrections = respelled(question, lexicon)
    looser = _searches(corrected, toolbox) if corrections else _widening(question, lexicon, toolbox)
    windows = _windows(ranked, evidence, toolbox)
    calls = [*windows[:1], *looser[:1], *windows[1:]]
    if not windows:
        calls += _listing(toolbox)
    if not evidence.succeeded:
        calls += _heads(question, evidence, toolbox, 1)
    if found := _new(calls, evidence):
        return found
    if ranked and evidence.searches and not question.paths:
        return ()
    return _new(_heads(question, evidence, toolbox, max(_BY_NAMES)), evidence)


def _is_enough(ranked: list[Ranked], evidence: Evidence) -> bool:
    """Whether the best passage has been read and answers."""
    if not ranked or ranked[0].finding is None:
        return False
    return evidence.is_read(ranked[0].passage.path, ranked[0].finding.unit.first)


def _searches(question: Question, toolbox: Toolbox) -> list[ToolCall]:
    if not toolbox.has("search_text"):
        return []
    queries = queries_of(question, regex=toolbox.has("search_text", "regex"))
    return [_search(query, toolbox) for query in queries[: CALLS[0]]]


def _widening(question: Question, lexicon: Lexicon, toolbox: Toolbox) -> list[ToolCall]:
    if not toolbox.has("search_text"):
        return []
    missing = [t for t, w in zip(question.terms, lexicon.weights, strict=True) if w == 0 and len(t.stems) == 1]
    missing = [term for term in missing if not term.is_exact]
    queries = loose_queries(missing, regex=toolbox.has("search_text", "regex"))
    return [_search(query, toolbox) for query in queries]


def _search(query: str, toolbox: Toolbox) -> ToolCall:
    context = {} if toolbox.has("read_file") else {"context": 2}
    return toolbox.call("search_text", query=query, regex=True, limit=_HITS, **context)


def _listing(toolbox: Toolbox) -> list[ToolCall]:
    return [toolbox.call("list_files")] if toolbox.has("list_files") else []


def _windows(ranked: list[Ranked], evidence: Evidence, toolbox: Toolbox) -> list[ToolCall]:
    """Read around the hits that compete with the best passage, or that hold a term which nothing read holds."""
    if not toolbox.has("read_file"):
        return []
    read = (one.terms for one in ranked if evidence.is_read(one.passage.path, one.passage.first))
    seen = frozenset[int]().union(*read)
    worth: list[Window] = []
    for window in windows_of(ranked, evidence):
        if window.score >= _WORTH * ranked[0].score or window.terms - seen:
            worth.append(window)
            seen |= window.terms
    calls = [(window.path, window.first, window.last) for window in worth[: CALLS[0]]]
    return [toolbox.call("read_file", path=path, start_line=first, end_line=last) for path, first, last in calls]


def _heads(question: Question, evidence: Evidence, toolbox: Toolbox, limit: int) -> list[ToolCall]:
    """Read the beginnings of the files that the question names, or else of the likeliest ones."""
    if not toolbox.has("read_file"):
        return []
    known = [path for path in likely_files(question, evidence.listing) if path not in evidence.read]
    named = [path for path in known if is_named(path, question.paths)]
    if question.paths and not named and not any(is_named(path, question.paths) for path in evidence.read):
        named = list(question.paths)
    guess = [] if evidence.listing or evidence.lines else ["README.md"]
    paths = named if question.paths else [*known, *guess]
    return [toolbox.call("read_file", path=path, start_line=1, end_line=_HEAD) for path in paths[:limit]]


def _new(calls: Iterable[ToolCall], evidence: Evidence) -> tuple[ToolCall, ...]:
    return tuple(call for call in calls if fingerprint(call.name, call.arguments) not in evidence.asked)
