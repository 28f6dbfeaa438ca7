"""The body of a response as text, whatever character set it claims to be in, or is in without saying so."""

import codecs
import re
from typing import Any

import charset_normalizer
import webencodings

_LABELS: Any = webencodings
"""The labels of the web (WHATWG): `iso-8859-1` means windows-1252 there. The library has no types of its own."""

_WIDER = {
    "shift_jis": "cp932",
    "gbk": "gb18030",
    "euc-kr": "cp949",
    "big5": "big5hkscs",
    "iso-8859-1": "cp1252",
    "iso8859_1": "cp1252",
}
"""What the web means by them, where Python's codec of the name knows fewer characters."""

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_GUESSED_BYTES = 20_000
"""That a guess is made from; it takes a moment for each thousand."""

_OF_THE_WEB = re.compile(
    r"utf_(?:8|16|32)\w*|iso8859_\d+|latin_1|cp\d+|koi8_[rtu]|mac_\w+|gb\w+|big5\w*"
    r"|euc_\w+|shift_jis\w*"
)


def decoded(body: bytes, charset: str | None) -> str:
    """Return the text: by its byte order mark, else by `charset`, a label of the web, else by what the bytes look like.

    Guessing takes some hundredths of a second: from an event loop it is called in a thread.
    """
    codec = next((name for mark, name in _BOMS if body.startswith(mark)), None) or _known(charset) or _guessed(body)
    return body.decode(codec, errors="replace").removeprefix("\ufeff")


def _known(label: str | None) -> str | None:
    found = _LABELS.lookup(label) if label and label.isascii() else None
    if found is None:
        return _known_to_python(label or "")
    name: str = found.codec_info.name
    return _WIDER.get(found.name) or _WIDER.get(name) or name


def _known_to_python(label: str) -> str | None:
    try:
        name = codecs.lookup(label).name.replace("-", "_")
    except (LookupError, ValueError):
        return None
    return _WIDER.get(name, name) if _OF_THE_WEB.fullmatch(name) else None


def _guessed(body: bytes) -> str:
    """Return UTF-8 where the bytes are, though they may be cut within a character; else the likeliest.

    No likely character set has a NUL in a text: bytes with one are broken, or no text at all.
    """
    if b"\0" in body:
        return "utf-8"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        best = charset_normalizer.from_bytes(body[:_GUESSED_BYTES]).best()
        name = best.encoding if best else ""
        return _WIDER.get(name, name) if _OF_THE_WEB.fullmatch(name) else "cp1252"
    return "utf-8"
