"""Finds secrets in notations that can be mixed and laid out freely: decodes them, then searches the result.

HTML references and escapes can replace only some characters, byte numbers can have anything between them, and a dump
has offsets and a column of text. So no table of spellings can list them.
"""

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

Span = tuple[int, int]

MIN_BYTES = 6
"""The least bytes that a list of numbers must give. No secret is shorter."""

_ESCAPES = re.compile(
    r"(?P<html>&(?:#\d{1,8}|#[xX][0-9a-fA-F]{1,7}|[A-Za-z][A-Za-z0-9]{1,31});?)"
    r"|(?P<address>(?:%[0-9a-fA-F]{2})+)"
    r"|(?P<bytes>(?:\\x[0-9a-fA-F]{2})+)"
    r"|(?P<octal>(?:\\[0-3][0-7]{2})+)"
    r"|(?P<units>(?:\\u[0-9a-fA-F]{4})+)"
    r"|(?P<point>\\(?:u\{[0-9a-fA-F]{1,8}\}|U[0-9a-fA-F]{8}))"
    r"|(?P<named>\\[nrt])"
    r"|(?P<itself>\\[^\w\s])"
)

_GAP = r"[^0-9A-Za-z]{1,60}"
_NUMBERS = {
    10: r"(\d{1,3})(?![0-9A-Za-z])",
    16: r"(?:0[xX]|\\x)?([0-9A-Fa-f]{2})[hH]?(?![0-9A-Za-z])",
    8: r"(?:0o|\\)?([0-3]?[0-7]{2})(?![0-9A-Za-z])",
}
_LISTS = {
    base: re.compile(rf"(?<![0-9A-Za-z]){number}(?:{_GAP}{number}){{{MIN_BYTES - 1},}}+".replace("([", "(?:["))
    for base, number in _NUMBERS.items()
}
_NUMBER = {base: re.compile(rf"(?<![0-9A-Za-z]){number}") for base, number in _NUMBERS.items()}

_DUMP_LINE = re.compile(
    r"(?:^[ \t]*|[\"'`])(?:(?P<offset>[0-9A-Fa-f]{4,16}):?[ \t]+)?"
    r"(?P<words>[0-9A-Fa-f]{1,80}(?: {1,8}[0-9A-Fa-f]{1,80})*)(?![0-9A-Za-z])[ \t]*(?:[|>\"'`].*|  .*)?$",
    re.MULTILINE,
)
"""A line of `xxd`, `hexdump` or `od`: an offset, words, a column of text."""


@dataclass(frozen=True)
class Reading:
    text: str
    marks: Callable[[], Sequence[tuple[Span, Span]]]
    """Returns two spans of each decoded part, in order: in `text`, and in the original text."""

    def spans(self, secrets: Iterable[str]) -> list[Span]:
        """Return the spans of secrets in the original text. A decoded part is always included as a whole."""
        found = [span for secret in secrets for span in _occurrences(self.text, secret)]
        return self.sources(found)

    def sources(self, found: Iterable[Span]) -> list[Span]:
        """Return the spans of the original text for spans of `text`."""
        spans = [*found]
        marks = self.marks() if spans else ()
        return [(_source_start(marks, start), _source_end(marks, end)) for start, end in spans]


def secret_spans(text: str, secrets: Sequence[str], as_bytes: Sequence[str]) -> list[Span]:
    """Return the spans of secrets in these notations, in order and without overlaps.

    Args:
        as_bytes: The secrets in UTF-8, with one character for each byte.
    """
    if not secrets:
        return []
    found = _number_spans(text, as_bytes)
    if _ESCAPES.search(text):
        unescaped = Reading(_ESCAPES.sub(_decoded_escape, text), lambda: _escape_marks(text))
        found += unescaped.spans(secrets)
        found += unescaped.sources(_number_spans(unescaped.text, as_bytes))
    apart: list[Span] = []
    for start, end in sorted(found):
        if apart and start < apart[-1][1]:
            apart[-1] = apart[-1][0], max(end, apart[-1][1])
        else:
            apart.append((start, end))
    return apart


def _occurrences(text: str, secret: str) -> Iterator[Span]:
    at = -1
    while (at := text.find(secret, at + 1)) >= 0:
        yield at, at + len(secret)


def _source_start(marks: Sequence[tuple[Span, Span]], at: int) -> int:
    before = bisect_right(marks, at, key=lambda mark: mark[0][0]) - 1
    if before < 0:
        return at
    (_, end), (source, source_end) = marks[before]
    return source if at < end else source_end + at - end


def _source_end(marks: Sequence[tuple[Span, Span]], at: int) -> int:
    before = bisect_left(marks, at, key=lambda mark: mark[0][0]) - 1
    if before < 0:
        return at
    (_, end), (_, source_end) = marks[before]
    return source_end if at <= end else source_end + at - end


def _decoded_escape(found: re.Match[str]) -> str:
    return _MEANINGS[found.lastgroup or ""](found[0])


def _decoded_bytes(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _code_point(escape: str) -> str:
    point = int(escape.strip("\\uU{}"), 16)
    return chr(point) if point < 0x110000 else escape


_MEANINGS: dict[str, Callable[[str], str]] = {
    "html": html.unescape,
    "address": lambda escape: _decoded_bytes(bytes.fromhex(escape.replace("%", ""))),
    "bytes": lambda escape: _decoded_bytes(bytes.fromhex(escape.replace("\\x", ""))),
    "octal": lambda escape: _decoded_bytes(bytes(int(digits, 8) for digits in escape.split("\\")[1:])),
    "units": lambda escape: bytes.fromhex(escape.replace("\\u", "")).decode("utf-16-be", "replace"),
    "point": _code_point,
    "named": lambda escape: {"n": "\n", "r": "\r", "t": "\t"}[escape[1]],
    "itself": lambda escape: escape[1],
}
"""Decoders by the group of `_ESCAPES`."""


def _escape_marks(text: str) -> list[tuple[Span, Span]]:
    marks: list[tuple[Span, Span]] = []
    at = length = 0
    for found in _ESCAPES.finditer(text):
        start = length + found.start() - at
        length = start + len(_decoded_escape(found))
        marks.append(((start, length), found.span()))
        at = found.end()
    return marks


def _number_spans(text: str, as_bytes: Sequence[str]) -> list[Span]:
    """Return the spans in which numbers are the bytes of a secret."""
    found: list[Span] = []
    for base, pattern in _LISTS.items():
        for run in pattern.finditer(text):
            found += _list_spans(run, base, as_bytes)
    lines = list(_DUMP_LINE.finditer(text))
    words = [_dump_words(line) for line in lines]
    for read in _WORD_DECODERS:
        parts = [read(each) for each in words]
        found += _bytes_reading(b"".join(parts), partial(_line_positions, lines, parts)).spans(as_bytes)
    return found


def _list_spans(run: re.Match[str], base: int, as_bytes: Sequence[str]) -> Iterator[Span]:
    number = _NUMBER[base]
    data = bytes(int(digits, base) & 0xFF for digits in number.findall(run.string, *run.span()))
    for step in (slice(None), slice(1, None, 2)):  # the second if each byte has its index, as in {"0": 115, "1": 107}
        yield from _bytes_reading(data[step], partial(_number_positions, run, number, step)).spans(as_bytes)


def _bytes_reading(data: bytes, sources: Callable[[], Sequence[Span]]) -> Reading:
    return Reading(data.decode("latin-1"), lambda: [((at, at + 1), span) for at, span in enumerate(sources())])


def _number_positions(run: re.Match[str], number: re.Pattern[str], step: slice) -> list[Span]:
    return [found.span() for found in number.finditer(run.string, *run.span())][step]


def _line_positions(lines: Sequence[re.Match[str]], parts: Sequence[bytes]) -> list[Span]:
    return [line.span() for line, part in zip(lines, parts, strict=True) for _ in part]


def _dump_words(line: re.Match[str]) -> list[str]:
    words: list[str] = line["words"].split()
    offset: str = line["offset"] or ""
    if offset and line.string[line.end("offset")] == ":":
        before, _, column = line["words"].rpartition("  ")  # `xxd`: a column of digits alone looks like a word
        return before.split() if 2 * len(column) == len("".join(before.split())) else words
    return [offset, *words] if offset and len(offset) == len(words[0]) else words


def _ordered_bytes(words: list[str]) -> bytes:
    size = len(words[0])
    count = next((number for number, word in enumerate(words) if len(word) != size), len(words))
    if count < len(words) and len(words[count]) < size:
        count += 1
    digits = "".join(words[:count])
    return bytes.fromhex(digits) if len(digits) % 2 == 0 else b""


def _swapped_hex_bytes(words: list[str]) -> bytes:
    """Return the bytes of hexadecimal words from a little-endian machine. The last may be shorter."""
    size = min(len(words[0]), 16)
    return b"".join(bytes.fromhex(word)[::-1] for word in words if len(word) % 2 == 0 and len(word) <= size)


def _swapped_octal_bytes(words: list[str]) -> bytes:
    """Return the bytes of words in the default format of `od`: octal numbers of a little-endian machine."""
    try:
        return b"".join((int(word, 8) & 0xFFFF).to_bytes(2, "little") for word in words if len(word) == 6)
    except ValueError:
        return b""


def _word_decoder(base: int) -> Callable[[list[str]], bytes]:
    def read(words: list[str]) -> bytes:
        try:
            return bytes(int(word, base) for word in words)
        except ValueError:
            return b""

    return read


_WORD_DECODERS = (_ordered_bytes, _swapped_hex_bytes, _swapped_octal_bytes, _word_decoder(8), _word_decoder(10))
"""All ways to decode the words of a dump."""
