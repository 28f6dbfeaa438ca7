"""Text cut to a limit, with a marker that says so."""

from pydantic_core import to_json


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
    size = len(to_json(text))
    return text if size <= max_bytes else clip(text, len(text.encode()) * max_bytes // size - 200, hint)
