"""Hides the secrets that a worker knows, in all known spellings, in everything that the worker passes on."""

import html
import json
import os
import re
from base64 import b32encode, b64encode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, TypeVar, cast
from urllib.parse import quote, quote_plus, unquote

from pydantic import BaseModel

from orga.activities.ports import ToolError

Span = tuple[int, int]

_MIN_BYTES = 6
"""The fewest numbers that are read as a list of bytes. No secret has fewer bytes."""

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
"""Patterns of one byte, by the base of the number."""
_LISTS = {
    base: re.compile(rf"(?<![0-9A-Za-z]){number}(?:{_GAP}{number}){{{_MIN_BYTES - 1},}}+".replace("([", "(?:["))
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
    """A text decoded from escapes or numbers of an original text."""

    text: str
    marks: Callable[[], Sequence[tuple[Span, Span]]]
    """Returns two spans for each decoded part, in order: its span in `text`, and its span in the original text."""

    def spans(self, secrets: Iterable[str]) -> list[Span]:
        """Return the spans of secrets in the original text. A decoded part is always included as a whole."""
        return self.sources(span for secret in secrets for span in _occurrences(self.text, secret))

    def sources(self, found: Iterable[Span]) -> list[Span]:
        spans = [*found]
        marks = self.marks() if spans else ()
        return [(_source_start(marks, start), _source_end(marks, end)) for start, end in spans]


def _secret_spans(text: str, secrets: Sequence[str], as_bytes: Sequence[str]) -> list[Span]:
    """Return the spans of secrets written with escapes or as numbers, in order and without overlaps.

    `as_bytes` has the same secrets in UTF-8, with one character for each byte.
    """
    if not secrets:
        return []
    found = _number_spans(text, as_bytes)
    if _ESCAPES.search(text):
        unescaped = Reading(_ESCAPES.sub(_decoded_escape, text), lambda: _escape_marks(text))
        found += unescaped.spans(secrets)
        found += unescaped.sources(_number_spans(unescaped.text, as_bytes))
    merged: list[Span] = []
    for start, end in sorted(found):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _occurrences(text: str, secret: str) -> Iterator[Span]:
    at = -1
    while (at := text.find(secret, at + 1)) >= 0:
        yield at, at + len(secret)


def _source_start(marks: Sequence[tuple[Span, Span]], start: int) -> int:
    """Return the start of a span in the original text. Within a decoded part, that is the start of the part."""
    last = bisect_right(marks, start, key=lambda mark: mark[0][0]) - 1
    if last < 0:
        return start
    (_, part_end), (source, source_end) = marks[last]
    return source if start < part_end else source_end + start - part_end


def _source_end(marks: Sequence[tuple[Span, Span]], end: int) -> int:
    """Return the end of a span in the original text. Within a decoded part, that is the end of the part."""
    last = bisect_left(marks, end, key=lambda mark: mark[0][0]) - 1
    if last < 0:
        return end
    (_, part_end), (_, source_end) = marks[last]
    return source_end if end <= part_end else source_end + end - part_end


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
    found: list[Span] = []
    for base, pattern in _LISTS.items():
        for run in pattern.finditer(text):
            found += _list_spans(run, base, as_bytes)
    lines = list(_DUMP_LINE.finditer(text))
    words = [_dump_words(line) for line in lines]
    for decode in _WORD_DECODERS:
        parts = [decode(each) for each in words]
        found += _bytes_reading(b"".join(parts), partial(_line_positions, lines, parts)).spans(as_bytes)
    return found


def _list_spans(run: re.Match[str], base: int, as_bytes: Sequence[str]) -> Iterator[Span]:
    number = _NUMBER[base]
    data = bytes(int(digits, base) & 0xFF for digits in number.findall(run.string, *run.span()))
    for step in (slice(None), slice(1, None, 2)):  # all numbers, or every second one for {"0": 115, "1": 107}
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
        before, _, column = line["words"].rpartition("  ")  # `xxd`: if its text has only digits, it looks like a word
        return before.split() if 2 * len(column) == len("".join(before.split())) else words
    is_offset_a_word = offset and len(offset) == len(words[0])  # the dump has no offsets
    return [offset, *words] if is_offset_a_word else words


def _ordered_bytes(words: list[str]) -> bytes:
    size = len(words[0])
    count = next((number for number, word in enumerate(words) if len(word) != size), len(words))
    if count < len(words) and len(words[count]) < size:
        count += 1  # the last word may be shorter
    digits = "".join(words[:count])
    return bytes.fromhex(digits) if len(digits) % 2 == 0 else b""


def _swapped_hex_bytes(words: list[str]) -> bytes:
    """Return the bytes of hexadecimal words from a little-endian machine. The last word may be shorter."""
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


_NAME = re.compile(
    r"(?i)(?:key|token|secret|password|passwd|passphrase|credentials?|headers|auth|authorization|bearer"
    r"|webhook(?:_?url)?|(?:^|_|db)(?:pass|pwd|pw|pat|dsn|cookies?|sas|jwt|signature))"
    r"(?:_?(?:v?\d+|prod(?:uction)?|staging|dev|test|live|ci|base|old|new|next|previous|ro|rw|pem|json|b64|base64|bedrock))*$"
)
"""Endings of the names of variables that hold secrets: `OPENAI_API_KEY`, `OTEL_EXPORTER_OTLP_HEADERS`."""

_FOLDER_VARIABLES = frozenset({"PWD"})
"""Variables that every shell sets to its folder. Hiding them would damage each path of a project."""

_PARTS = re.compile(r"[,\r\n]")
"""Separators between the keys of a list or the lines of a key."""

_EMBEDDED_SECRET = re.compile(
    r"(?i)://[^\s/?#:@]*:([^\s/?#]+)@"  # the password of an address
    r"|https?://([^\s/?#:@]+)@"  # a token in front of a host
    r"|(?:password|passwd|pwd|accountkey|sharedaccesskey|secret|token|api_?key|\bsig)=([^;&\s'\"]+)"
)

COMMON_VALUES = frozenset(
    {"postgres", "password", "passw0rd", "changeme", "changeit", "localhost", "username", "minioadmin"}
)
"""Values that are common in texts. Hiding them would damage the texts and protect nothing."""


def secret_values(environment: Mapping[str, str], also: Iterable[str] = ()) -> Iterator[str]:
    """Yield the secrets in the variables. The variables in `also` hold secrets, whatever their names are."""
    names = {*filter(_NAME.search, environment.keys() - _FOLDER_VARIABLES), *also}
    named = [environment.get(name, "") for name in names]
    values = [each for value in named for each in _with_parts(value)]
    for value in environment.values():
        values += [found for match in _EMBEDDED_SECRET.finditer(value) for found in filter(None, match.groups())]
        values += _json_secrets(value)
    for value in values:
        yield from (form for form in {value, unquote(value)} if form.lower() not in COMMON_VALUES)


def _with_parts(value: str) -> Iterator[str]:
    yield value
    yield from (part for part in map(str.strip, _PARTS.split(value)) if not part.startswith("-----"))


def _json_secrets(text: str) -> Iterator[str]:
    """Yield the secrets in a JSON object, such as a cloud service account."""
    try:
        given: Any = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return
    level = [given]
    while level:
        objects = [cast("dict[str, Any]", each) for each in level if isinstance(each, dict)]
        for key, value in (pair for each in objects for pair in each.items()):
            if isinstance(value, str) and _NAME.search(key):
                yield from _with_parts(value)
        level = [inner for each in objects for inner in each.values()]


MIN_CHARS = 6
"""The fewest characters of a spelling. Base64 without its context-dependent ends can be shorter than the secret."""

_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_JSON_ESCAPES = tuple(
    str.maketrans({character: form % ord(character) for character in escaped})
    for form in ("\\u%04x", "\\u%04X")
    for escaped in ("&<>", "&<>='", "&<>'+`", "&<>'\"+`")
)
"""The characters that Go, Gson and .NET escape in addition to those that JSON requires."""
_TEMPLATE_ESCAPES = str.maketrans({character: f"&#x{ord(character):X};" for character in "/=`"})
"""The characters that Mustache and similar libraries escape in addition to those that HTML requires."""

_BYTE_FORMATS = (
    *((f"%02{digits}", between) for digits in "xX" for between in ("", " ", ":", "-", ",")),
    *((f"{mark}%02{digits}", "") for digits in "xX" for mark in ("\\x", "%%")),
    *(("0x%02x", between) for between in (" ", ",", ", ")),
    *(("%d", between) for between in (" ", ",", ", ")),
    ("\\%03o", ""),
)
"""Formats of a byte, with the separator between two."""

_UNIT_FORMATS = ("\\u%04x", "\\u%04X")
"""Formats of a UTF-16 unit, as in JSON."""

_CHARACTER_FORMATS = ("&#%d;", "&#x%x;", "&#x%X;", "\\u{%x}")


def spellings(value: str) -> Iterator[str]:
    """Yield a value unchanged, in JSON, in Python's representation, in both combined, and encoded."""
    once = _escaped_forms(value)
    yield from once.union(*map(_escaped_forms, once))
    data = value.encode(errors="replace")
    wide = value.encode("utf-16-le", errors="replace")  # as PowerShell encodes it
    in_base64 = (*_base64_forms(data), *_base64_forms(wide))
    twice = [form for encoded in encoded_forms(value) for form in encoded_forms(encoded)]
    in_bases = (*in_base64, *_shifted_forms(b32encode, data, 5, range(5)))
    for encoded in (_url_forms(value), in_bases, twice, _digit_forms(value, data), [wide.hex()], _markup_forms(value)):
        yield from (text for text in encoded if len(text) >= MIN_CHARS)


def encoded_forms(value: str) -> Iterator[str]:
    """Yield the base64 and hexadecimal forms of a value."""
    data = value.encode(errors="replace")
    digits = data.hex()
    yield from (text for text in (*_base64_forms(data), digits, digits.upper()) if len(text) >= MIN_CHARS)


def _escaped_forms(value: str) -> set[str]:
    in_json = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    by_php = {text.replace("/", "\\/") for text in in_json}
    plain_quotes = {text.replace('\\"', '"') for text in in_json}  # some libraries escape quotes by number
    by_others = {text.translate(table) for text in in_json | plain_quotes for table in _JSON_ESCAPES}
    return {value, repr(value)[1:-1], *in_json, *by_php, *by_others}


def _url_forms(value: str) -> Iterator[str]:
    """Yield the forms of a value in a URL. Libraries escape different characters and use either case."""
    for text in (
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        quote(value, safe="/:@!$&'()*+,;=~", errors="replace"),
        quote(value, safe="!'()*~", errors="replace"),  # as JavaScript does
        quote_plus(value, errors="replace"),
        quote_plus(value, safe="*", errors="replace").replace("~", "%7E"),  # as Java and forms do
    ):
        yield text
        yield _ESCAPE.sub(lambda escape: escape[0].lower(), text)
        yield quote(text, safe="")  # an address within an address


def _base64_forms(data: bytes) -> Iterator[str]:
    encoders: Iterable[Callable[[bytes], bytes]] = (b64encode, urlsafe_b64encode)
    for encode in encoders:
        yield from _shifted_forms(encode, data, 6, range(3))
    yield b64encode(data).decode().rstrip("=")
    yield b32encode(data).decode().rstrip("=")


def _shifted_forms(encode: Callable[[bytes], bytes], data: bytes, bits: int, shifts: Iterable[int]) -> Iterator[str]:
    """Yield the encoded forms of a value within a longer text. For example, `user:` before the value shifts it.

    The characters at both ends also depend on the text around the value, so they are left out.

    Args:
        bits: Bits of each character.
        shifts: Offsets in bytes.
    """
    for shift in shifts:
        encoded = encode(b"\0" * shift + data).decode()
        yield encoded[-(-shift * 8 // bits) : (shift + len(data)) * 8 // bits]


def _digit_forms(value: str, data: bytes) -> Iterator[str]:
    for form, between in _BYTE_FORMATS:
        yield between.join(form % byte for byte in data)
    units = memoryview(value.encode("utf-16", "replace")).cast("H")[1:]  # the first is the mark of the byte order
    for form in _UNIT_FORMATS:
        yield "".join(form % unit for unit in units)
    for form in _CHARACTER_FORMATS:
        yield "".join(form % ord(character) for character in value)


def _markup_forms(value: str) -> Iterator[str]:
    yield html.escape(value)
    yield html.escape(value, quote=False)
    yield html.escape(value).replace("&#x27;", "&#39;")
    yield html.escape(value).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    yield html.escape(value).translate(_TEMPLATE_ESCAPES)
    yield value[::-1]


MIN_GUESSED_CHARS = 8
"""The fewest characters of a secret from the environment. Hiding shorter values would damage every text."""

MIN_SECRET_CHARS = 6
"""The fewest characters of a declared secret."""

REDACTED = "[redacted]"

_PART_CHARS = 4
"""The fewest characters that are recognised as the beginning or end of a secret next to a cut."""

_CUT_END = re.compile(r"\n\[(?:cut at |line \d+ is cut |\.\.\. [\d,]+ bytes left out )|…(?=\n|\Z)")
"""The note that our tools write after a text whose end they cut."""

_CUT_BEGINNING = re.compile(r"bytes left out \.\.\.\]\n|characters of its output:\n|[:-] …")
"""The note that our tools write before a text whose beginning they cut."""

_LINE_WRAP = r"(?:(?:\\r)?\\n)?[ \t\"'+,.&]{0,6}(?:\r?\n[ \t]{0,40}(?:\d{1,9}\t|> |[\"'])?|(?<=\\n))"
"""A line end, plain or escaped in a string, and what the next line may begin with: a line number or a quote."""

_WRAPPED = re.compile(rf"(?<![\w+/=-])(?:[\w+/-]{{16,}}{_LINE_WRAP})+[\w+/=-]+", re.ASCII)
"""Wrapped lines of `base64`, MIME and PEM."""

_WRAP_SEPARATOR = re.compile(_LINE_WRAP, re.ASCII)

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class KnownSecrets:
    """Texts to hide, the longest first."""

    texts: tuple[str, ...] = field(default=(), repr=False)
    decoded: tuple[str, ...] = field(default=(), repr=False)
    """The secrets to search for after escapes and numbers are decoded."""

    @classmethod
    def from_values(cls, values: Iterable[str], least: int = MIN_SECRET_CHARS) -> "KnownSecrets":
        """Return the values as secrets in all spellings. Values of fewer than `least` characters are left out."""
        secrets = {value for value in values if len(value) >= least}
        texts = sorted({form for value in secrets for form in spellings(value)}, key=len, reverse=True)
        return cls(tuple(texts), tuple({form for value in secrets for form in (value, *encoded_forms(value))}))

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] = os.environ, also: Iterable[str] = (), more: Iterable[str] = ()
    ) -> "KnownSecrets":
        """Return the secrets in variables, and `more` values. Variables in `also` count whatever their names are."""
        return cls.from_values([*secret_values(environment, also), *more], MIN_GUESSED_CHARS)

    def with_values(self, values: Iterable[str]) -> "KnownSecrets":
        more = KnownSecrets.from_values(values)
        texts = sorted({*self.texts, *more.texts}, key=len, reverse=True)
        return KnownSecrets(tuple(texts), (*self.decoded, *more.decoded))

    @cached_property
    def longest(self) -> int:
        """Characters of the longest spelling."""
        return max(map(len, self.texts), default=0)

    def redact(self, text: str, *, is_cut: bool = False) -> str:
        """Return the text without secrets. With `is_cut`, the beginning of a secret at its end is hidden too."""
        text = _WRAPPED.sub(self._unwrap, text) if self.texts else text
        for secret in self.texts:
            text = text.replace(secret, REDACTED)
        for start, end in reversed(_secret_spans(text, self.decoded, self._as_bytes)):
            text = text[:start] + REDACTED + text[end:]
        return text[: len(text) - self._begun_chars(text)] if is_cut else text

    def redact_at_cuts(self, text: str) -> str:
        """Return the text of a tool without the remains of secrets that the tool split when it cut the text."""
        if not self.texts:
            return text
        ends = {mark.start() for mark in _CUT_END.finditer(text)}
        begins = {mark.end() for mark in _CUT_BEGINNING.finditer(text)}
        pieces: list[str] = []
        for start, end in pairwise(sorted({0, len(text), *ends, *begins})):
            piece = text[start:end]
            piece = piece[self._ended_chars(piece) :] if start in begins else piece
            pieces.append(piece[: len(piece) - self._begun_chars(piece)] if end in ends else piece)
        return "".join(pieces)

    def redact_record(self, record: R) -> R:
        """Return the record with secrets hidden in texts and keys. Without secrets it is the same object."""
        if not self.texts:
            return record
        value = record.model_dump(mode="json", exclude_unset=True)
        redacted = self._redact_value(value)
        return record if redacted == value else type(record).model_validate(redacted)

    def redact_error(self, error: ToolError) -> ToolError:
        return ToolError(self.redact(str(error)), kind=error.kind, retryable=error.retryable, acted=error.acted)

    def _unwrap(self, found: re.Match[str]) -> str:
        """Return lines of base64 joined if a secret spans them."""
        joined = _WRAP_SEPARATOR.sub("", found[0])
        return joined if any(secret in joined for secret in self.texts) else found[0]

    def _begun_chars(self, text: str) -> int:
        """Return how many characters at the end are the beginning of a secret."""
        if not self._first_parts.search(text, max(len(text) - self.longest, 0)):
            return 0
        return max((_begun_length(form, text) for form in self.texts), default=0)

    def _ended_chars(self, text: str) -> int:
        """Return how many characters at the beginning are the end of a secret."""
        first = text[:_PART_CHARS]
        return max((_ended_length(form, first, text) for form in self.texts if first in form), default=0)

    @cached_property
    def _as_bytes(self) -> tuple[str, ...]:
        return tuple(text.encode(errors="replace").decode("latin-1") for text in self.decoded)

    @cached_property
    def _first_parts(self) -> re.Pattern[str]:
        return re.compile("|".join(sorted({re.escape(form[:_PART_CHARS]) for form in self.texts})))

    def _redact_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, list):
            return [self._redact_value(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            pairs = cast("dict[str, Any]", value).items()
            return {self.redact(key): self._redact_value(item) for key, item in pairs}
        return value


def _begun_length(form: str, text: str) -> int:
    at = max(len(text) - len(form) + 1, 0)
    while (at := text.find(form[:_PART_CHARS], at)) >= 0:
        if form.startswith(text[at:]):
            return len(text) - at
        at += 1
    return 0


def _ended_length(form: str, first: str, text: str) -> int:
    at = 0
    while len(first) == _PART_CHARS and (at := form.find(first, at)) >= 0:
        if text.startswith(form[at:]):
            return len(form) - at
        at += 1
    return 0


NO_SECRETS = KnownSecrets()
