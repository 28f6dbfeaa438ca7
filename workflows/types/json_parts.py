"""How many parts JSON has, told before it is read: each is an object of Python, and millions of them take seconds."""

import re

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def has_more_parts(data: bytes | bytearray, most: int) -> bool:
    """Return whether it has more lists, objects and commas than that, those within strings left out."""
    if _marks(data) <= most:
        return False
    return data.count(b'"') - data.count(b'\\"') > 2 * most or _marks(without_strings(data)) > most


def without_strings(data: bytes | bytearray) -> bytes:
    """Return what stands between the strings."""
    return _STRING.sub(b"", data)


def _marks(data: bytes | bytearray) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")
