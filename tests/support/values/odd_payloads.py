"""Payloads that no honest sender uses: bytes, or values that are too large, too deep or too odd for any run."""

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

MB = 1_000_000


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    """Return an argument as raw payload."""
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


def repeated(item: bytes, size: int, before: bytes = b"[", after: bytes = b"0]") -> bytes:
    """Return a list of this many bytes."""
    return before + item * (size // len(item)) + after


def quoted(text: str, size: int, end: str = "") -> bytes:
    """Return a text of this many bytes as JSON."""
    return b'"' + (text * (size // len(text.encode())) + end).encode() + b'"'


def odd(size: int) -> dict[str, bytes]:
    """Return JSON values of about this many bytes, each by its oddity."""
    return {
        "text": quoted("x", size),
        "text with one wide character": quoted("x", size, "😀"),
        "text that shows as ten characters for one": quoted("\U000e0001", size),
        "text of escapes": b'"' + b"\\u0001" * (size // 6) + b'"',
        "numbers": repeated(b"0,", size),
        "lists": repeated(b"[],", size),
        "objects": repeated(b'{"a":0},', size),
        "NaN": repeated(b"NaN,", size),
        "long numbers": repeated(b"9" * 4_000 + b",", size),
        "keys": b"{" + b",".join(b'"%x":0' % n for n in range(size // 10)) + b"}",
    }


SMALL = {
    "2**70": b"%d" % 2**70,
    "5,000 digits": b"9" * 5_000,
    "NaN": b"NaN",
    "infinity": b"-Infinity",
    "half a character": b'"\\ud800"',
    "a key of half a character": b'{"\\ud800": 1}',
    "190 deep": b"[" * 190 + b"]" * 190,
    "10,000 deep": b"[" * 10_000 + b"]" * 10_000,
    "true": b"true",
    "null": b"null",
    "an empty list": b"[]",
    "an empty object": b"{}",
    "a text": b'"text"',
    "no JSON": b"{",
}
"""Texts that are JSON, or nearly."""
