"""The spellings in which a text may hold a secret: a table of encoders."""

import html
import json
import re
from base64 import b32encode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote, quote_plus

MIN_CHARS = 6
"""Of a spelling; base64 cut to what does not depend on its surroundings is shorter than what it stands for."""

_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_AS_IN_JSON = tuple(
    str.maketrans({character: form % ord(character) for character in escaped})
    for form in ("\\u%04x", "\\u%04X")
    for escaped in ("&<>", "&<>='", "&<>'+`", "&<>'\"+`")
)
"""What Go, Gson and .NET escape beside what JSON needs; PHP writes `\\/`."""
_AS_IN_TEMPLATES = str.maketrans({character: f"&#x{ord(character):X};" for character in "/=`"})
"""What Mustache and its like escape beside what HTML needs."""

_OF_BYTES = (
    *((f"%02{digits}", between) for digits in "xX" for between in ("", " ", ":", "-", ",")),
    *((f"{mark}%02{digits}", "") for digits in "xX" for mark in ("\\x", "%%")),
    *(("0x%02x", between) for between in (" ", ",", ", ")),
    *(("%d", between) for between in (" ", ",", ", ")),
    ("\\%03o", ""),
)
"""How a byte is written, and what stands between two."""

_OF_UNITS = ("\\u%04x", "\\u%04X")
"""Of UTF-16, as in JSON."""

_OF_CHARACTERS = ("&#%d;", "&#x%x;", "&#x%X;", "\\u{%x}")


def spellings(value: str) -> Iterator[str]:
    """Yield a value as it is, in JSON and in Python's representation, one of these in another, and encoded."""
    once = _escaped(value)
    yield from once.union(*map(_escaped, once))
    data = value.encode(errors="replace")
    wide = value.encode("utf-16-le", errors="replace")  # as PowerShell encodes it
    in_base64 = (*_in_base64(data), *_in_base64(wide))
    twice = [form for once in encoded_once(value) for form in encoded_once(once)]
    in_bases = (*in_base64, *_within(b32encode, data, 5, range(5)))
    for encoded in (_in_addresses(value), in_bases, twice, _in_digits(value, data), [wide.hex()], _in_markup(value)):
        yield from (text for text in encoded if len(text) >= MIN_CHARS)


def encoded_once(value: str) -> Iterator[str]:
    """Yield what base64 and hexadecimal digits show of a value."""
    data = value.encode(errors="replace")
    digits = data.hex()
    yield from (text for text in (*_in_base64(data), digits, digits.upper()) if len(text) >= MIN_CHARS)


def _escaped(value: str) -> set[str]:
    written = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    of_others = {text.replace("/", "\\/") for text in written}
    of_others |= {text.translate(table) for text in (*written, *_without_marks(written)) for table in _AS_IN_JSON}
    return {value, repr(value)[1:-1], *written, *of_others}


def _without_marks(written: Iterable[str]) -> Iterator[str]:
    """Yield JSON whose quotes are left to be escaped by their number."""
    yield from (text.replace('\\"', '"') for text in written if '\\"' in text)


def _in_addresses(value: str) -> Iterator[str]:
    """Yield what stands in a URL: how much is escaped differs, and so does the case of escapes."""
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


def _in_base64(data: bytes) -> Iterator[str]:
    encoders: Iterable[Callable[[bytes], bytes]] = (b64encode, urlsafe_b64encode)
    for encode in encoders:
        yield from _within(encode, data, 6, range(3))
    yield b64encode(data).decode().rstrip("=")
    yield b32encode(data).decode().rstrip("=")


def _within(encode: Callable[[bytes], bytes], data: bytes, bits: int, shifts: Iterable[int]) -> Iterator[str]:
    """Yield what an encoded text shows of a value, wherever in it that is: `user:value` shifts it by some bytes.

    The characters at both ends depend on the neighbours, too, and are left out.

    Args:
        encode: The encoder.
        data: The value.
        bits: Of each character.
        shifts: By how many bytes.
    """
    for before in shifts:
        shown = encode(b"\0" * before + data).decode()
        yield shown[-(-before * 8 // bits) : (before + len(data)) * 8 // bits]


def _in_digits(value: str, data: bytes) -> Iterator[str]:
    for form, between in _OF_BYTES:
        yield between.join(form % byte for byte in data)
    for form in _OF_UNITS:
        yield "".join(form % unit for unit in _units(value))
    for form in _OF_CHARACTERS:
        yield "".join(form % ord(character) for character in value)


def _units(value: str) -> Iterator[int]:
    encoded = value.encode("utf-16-be", "replace")
    for at in range(0, len(encoded), 2):
        yield int.from_bytes(encoded[at : at + 2], "big")


def _in_markup(value: str) -> Iterator[str]:
    yield html.escape(value)
    yield html.escape(value, quote=False)
    yield html.escape(value).replace("&#x27;", "&#39;")
    yield html.escape(value).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    yield html.escape(value).translate(_AS_IN_TEMPLATES)
    yield value[::-1]
