"""Splits documents into parts that are small enough to be recalled and readable on their own.

A part begins at a heading. A long section is cut between paragraphs, or sentences, or words. Each further part repeats
the last sentences of the part before it, so that a search finds text on both sides of a cut.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_BODY_CHARS = 1_200
"""Characters of a part's own text."""
OVERLAP_CHARS = 150
"""The most characters that a part repeats from the part before it."""

_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
"""A heading. Code removes closing `#`, because a pattern for that is far too slow for a long line of `# # #`."""
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_BLANK_LINES = re.compile(r"\n[ \t]*\n+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+|(?<=[。！？])")


@dataclass(frozen=True)
class Chunk:
    number: int
    """Counted from 0."""
    headings: tuple[str, ...]
    """The headings above it, the outermost first."""
    body: str

    @property
    def text(self) -> str:
        """The stored text: the headings in one line, then the body."""
        return "\n".join((" > ".join(self.headings), self.body)) if self.headings else self.body


def chunks(text: str, *, limit: int = MAX_BODY_CHARS, overlap: int = OVERLAP_CHARS) -> list[Chunk]:
    """Return the parts of a text in order. No part is empty, and no body is longer than the limit plus the overlap.

    Args:
        text: Markdown or plain text. A `#` line within fenced code is no heading.
        limit: Characters, at least 100.
        overlap: Characters, less than half the limit.

    Raises:
        ValueError: The limit or the overlap is out of range.
    """
    if limit < 100 or not 0 <= overlap < limit / 2:
        raise ValueError(f"cannot cut a text at {limit} characters with an overlap of {overlap}")
    found: list[Chunk] = []
    for headings, section in _sections(text.replace("\r\n", "\n")):
        before = ""
        for body in _packed_bodies(list(_pieces(section, limit)), limit):
            repeated = _last_sentences(before, overlap)
            found.append(Chunk(len(found), headings, f"{repeated}\n{body}" if repeated else body))
            before = body
    return found


def _sections(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    headings: list[tuple[int, str]] = []
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is None:
            lines.append(line)
            continue
        yield tuple(name for _, name in headings), "\n".join(lines).strip()
        level, lines = len(heading[1]), []
        headings = [*(each for each in headings if each[0] < level), (level, heading[2].rstrip("# \t")[:200])]
    yield tuple(name for _, name in headings), "\n".join(lines).strip()


def _pieces(section: str, limit: int) -> Iterator[str]:
    """Yield paragraphs, the sentences of long paragraphs, and pieces of long sentences."""
    for paragraph in _BLANK_LINES.split(section):
        if len(paragraph) <= limit:
            yield f"{paragraph}\n\n"
            continue
        for sentence in filter(None, _SENTENCE_END.split(paragraph)):
            yield from (f"{part} " for part in _sentence_pieces(sentence, limit))


def _sentence_pieces(sentence: str, limit: int) -> Iterator[str]:
    while len(sentence) > limit:
        cut = sentence.rfind(" ", 1, limit) if " " in sentence[1:limit] else limit
        yield sentence[:cut]
        sentence = sentence[cut:].lstrip()
    if sentence:
        yield sentence


def _packed_bodies(pieces: list[str], limit: int) -> Iterator[str]:
    body = ""
    for piece in pieces:
        if body and len(body) + len(piece.rstrip()) > limit:
            yield body.strip()
            body = ""
        body += piece
    if body.strip():
        yield body.strip()


def _last_sentences(body: str, overlap: int) -> str:
    """Return the last whole sentences that fit, or the last words if no sentence fits."""
    if not overlap or not body:
        return ""
    tail = body[-overlap:]
    if len(body) <= overlap:
        return tail
    for end in _SENTENCE_END.finditer(tail):
        if tail[end.end() :].strip():
            return tail[end.end() :].strip()
    return tail.partition(" ")[2].strip() or tail
