"""Text cut to a limit, with a marker that says so."""

from pydantic_core import to_json

MARKER_BYTES = 200
"""That the marker may take."""

MOST_IN_JSON = 6
"""Bytes of JSON that one byte of text can take."""

ESCAPES_BYTES = 8
"""Of the marker and the quotes around a text."""


def clip(text: str, max_bytes: int, hint: str = "ask for a smaller part") -> str:
    """Return `text` within `max_bytes` of UTF-8, its marker included; text that fits comes back as it is."""
    data = text.encode("utf-8")
    if len(data) <= max_bytes:
        return text
    marker = f"\n[cut: {len(data)} bytes in all, over the limit of {max_bytes}; {hint}]"
    room = max(max_bytes - len(marker.encode("utf-8")), 0)
    return data[:room].decode("utf-8", "ignore") + marker


def clip_json(text: str, max_bytes: int, hint: str = "ask for a smaller part") -> str:
    """Return `text` within `max_bytes` of JSON, where a quote takes two bytes and a control character six."""
    most = bytes_in_json(text, max_bytes)
    return text if most is None else clip(text, most, hint)


def bytes_in_json(text: str, max_bytes: int) -> int | None:
    """Return to how many bytes `text` has to be cut to be within `max_bytes` of JSON; None where all of it is."""
    if len(to_json(text)) <= max_bytes:
        return None
    data, room = text.encode(), max(max_bytes - MOST_IN_JSON * MARKER_BYTES, max_bytes // 2)
    most = len(data)
    while most and (size := len(to_json(data[:most].decode("utf-8", "ignore")))) > room:
        most = most * room // size
    return min(most + MARKER_BYTES - ESCAPES_BYTES, max_bytes, len(data) - 1)
