"""The answer: quotes with their sources, what was not found or not allowed, and what wrote it."""

from collections.abc import Sequence

from orga.activities.adapters.models.reader.evidence import Evidence
from orga.activities.adapters.models.reader.files import likely_files, name_matches, prior
from orga.activities.adapters.models.reader.lexicon import Lexicon
from orga.activities.adapters.models.reader.overview import overview_quotes
from orga.activities.adapters.models.reader.question import Question, Term, parts_of
from orga.activities.adapters.models.reader.quote import Quote
from orga.activities.adapters.models.reader.ranking import Ranked, ranked_passages
from orga.activities.adapters.models.reader.selection import repeats, selected_quotes
from orga.activities.adapters.models.reader.spelling import respelled
from orga.activities.adapters.models.reader.toolbox import Toolbox

SIGNATURE = "offline:extractive: no language model; passages quoted as found"
_MOST_QUOTES = 3
_WHOLE = 0.8
"""Coverage from which a question that asks two things is answered by one passage."""
_NAMES = 25
"""Files named in the room of one quote."""


def answer_to(question: Question, evidence: Evidence, toolbox: Toolbox, room: int) -> str:
    """Return the answer, with fewer quotes when it would be longer than `room` characters."""
    closing = [*_notes(question, evidence, toolbox), SIGNATURE]
    text = ""
    for most in range(_MOST_QUOTES, 0, -1):
        blocks = _blocks(question, evidence, most) or [_nothing(question, evidence)]
        text = "\n\n".join([*blocks, *closing])
        if len(text) <= room:
            break
    return text


def _blocks(question: Question, evidence: Evidence, most: int) -> list[str]:
    if question.wanted == "listing":
        return _file_names(list(evidence.listing), evidence.listing_is_cut, most)
    if question.wanted == "overview":
        return _overview(question, evidence, most)
    return _passages(question, evidence, most)


def is_answered(question: Question, evidence: Evidence) -> bool:
    """Return whether anything at hand answers, so that the answer is more than what was not found."""
    if question.wanted in {"listing", "overview"}:
        return bool(_blocks(question, evidence, 1))
    return bool(question.terms and _quotes(question, evidence, *ranked_passages(question, evidence), most=1)[0])


def _quotes(
    question: Question, evidence: Evidence, ranked: list[Ranked], lexicon: Lexicon, *, most: int
) -> tuple[list[Quote], list[str]]:
    """Return the quotes of what answers, and the words of the question that are answered by none."""
    quotes, absent = selected_quotes(ranked, lexicon, evidence, most), _absent(question, lexicon)
    if not ranked or ranked[0].finding is None or ranked[0].finding.coverage < _WHOLE:
        by_parts, unanswered = _by_parts(question, evidence, most)
        quotes, absent = (by_parts, [*absent, *unanswered]) if by_parts else (quotes, absent)
    return quotes, absent


def _passages(question: Question, evidence: Evidence, most: int) -> list[str]:
    """Return what was not found, and the quotes of what answers; where nothing does, none."""
    if not question.terms:
        return []
    ranked, lexicon = ranked_passages(question, evidence)
    quotes, absent = _quotes(question, evidence, ranked, lexicon, most=most)
    fixes = ", ".join(f"{wrong} → {right}" for wrong, right in respelled(question, lexicon)[1].items())
    read_as = [f"Read as: {fixes}."] if fixes else []
    if not quotes:
        return [
            _refusal(question, evidence, absent),
            *_closest(ranked, question),
            *read_as,
            *_names(question, evidence),
        ]
    files = len({quote.path for quote in quotes})
    rest = f"; {len(quotes)} quotes from {_count(files, 'file')}, best first" if len(quotes) > 1 else ""
    missing = [f"Not found: {', '.join(absent)}."] if absent else []
    return [*missing, f"The closest passage is in `{quotes[0].source}`{rest}.", *map(_quoted, quotes), *read_as]


def _by_parts(question: Question, evidence: Evidence, most: int) -> tuple[list[Quote], list[str]]:
    """Return the quotes of a question that asks two things, where no passage answers both, and what has none."""
    quotes, unanswered = list[Quote](), list[str]()
    for part in parts_of(question):
        ranked, lexicon = ranked_passages(part, evidence)
        found = selected_quotes(ranked, lexicon, evidence, max(1, most // 2))
        quotes += [quote for quote in found if not any(repeats(quote, other) for other in quotes)]
        unanswered += [] if found else [_together(part)]
    return quotes[:most], unanswered


def _absent(question: Question, lexicon: Lexicon) -> list[str]:
    """Return the words of the question that occur nowhere; those of a longer one are told by it."""
    pairs = zip(question.terms, lexicon.weights, lexicon.is_part, strict=True)
    return list(dict.fromkeys(term.surface for term, weight, is_part in pairs if weight == 0 and not is_part))


def _refusal(question: Question, evidence: Evidence, absent: list[str]) -> str:
    terms = list(dict.fromkeys(term.surface for term in question.terms))
    what = ", ".join(absent) or _together(question)
    looked = [f"searched for {', '.join(terms)}"] if evidence.searches else []
    looked += [_count(len(evidence.listing), "file") + " listed"] if evidence.listing else []
    looked += [_count(len(evidence.read), "file") + " read"] if evidence.read else []
    return f"Not found: {what}. Nothing answers the question ({'; '.join(looked) or 'nothing could be searched'})."


def _together(question: Question) -> str:
    whole = [term.surface for term in question.terms if not any(_is_inside(term, other) for other in question.terms)]
    return f"a passage that says {' and '.join(dict.fromkeys(whole[:6]))}"


def _is_inside(term: Term, other: Term) -> bool:
    return len(term.stems) == 1 < len(other.stems) and term.stems[0] in other.stems


def _closest(ranked: Sequence[Ranked], question: Question) -> list[str]:
    """Name the place that holds most of the words: it does not answer, so nothing of it is quoted."""
    if not ranked:
        return []
    best = max(ranked, key=lambda one: one.coverage * prior(one.passage.path))
    held = ", ".join(dict.fromkeys(question.terms[place].surface for place in sorted(best.terms)))
    return [f"Nearest to it, and not quoted, is `{best.passage.path}:{best.passage.first}` ({held})."]


def _overview(question: Question, evidence: Evidence, most: int) -> list[str]:
    blocks: list[str] = []
    for outline, quotes in overview_quotes(question, evidence):
        if quotes:
            blocks.append(f"`{quotes[0].path}`" + (f": {outline}" if outline else ""))
            blocks += map(_quoted, quotes[:most])
    return blocks or _file_names(likely_files(question, evidence.listing), evidence.listing_is_cut, most)


def _file_names(paths: Sequence[str], is_cut: bool, most: int) -> list[str]:
    if not paths:
        return []
    more = " or more; the list was cut" if is_cut else ""
    shown = paths[: most * _NAMES]
    left_out = [f"… and {len(paths) - len(shown)} more."] if len(paths) > len(shown) else []
    return [f"{_count(len(paths), 'file')}{more}:", "\n".join(f"- `{path}`" for path in shown), *left_out]


def _names(question: Question, evidence: Evidence) -> list[str]:
    matching = [path for path in likely_files(question, evidence.listing) if name_matches(question, path) > 0]
    names = "\n".join(f"- `{path}`" for path in matching[:10])
    return ["These files match by name:", names] if matching else []


def _quoted(quote: Quote) -> str:
    text = "\n".join(f"> {line}".rstrip() for line in quote.text.split("\n"))
    heading = f", under “{quote.heading}”" if quote.heading else ""
    return f"{text}\n— `{quote.source}`{heading}"


def _nothing(question: Question, evidence: Evidence) -> str:
    if not question.text:
        return "There is no question in the conversation."
    return _refusal(question, evidence, ["anything to list" if question.wanted == "listing" else "anything to sum up"])


def _notes(question: Question, evidence: Evidence, toolbox: Toolbox) -> list[str]:
    notes = [f"Refused: {tool}, {_count(len(texts), 'call')}. {_line(texts[0])}" for tool, texts in _refused(evidence)]
    if not toolbox.arguments and question.text:
        notes.append("No tool that lists, searches or reads files is offered in this step.")
    return ["\n".join(notes)] if notes else []


def _refused(evidence: Evidence) -> list[tuple[str, list[str]]]:
    return [(tool, texts) for tool, texts in evidence.refusals.items() if tool]


def _line(text: str) -> str:
    return " ".join(text.split())[:200]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
