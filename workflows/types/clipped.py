"""Text cut to a limit, with a marker that says so."""


def clip(text: str, max_bytes: int, hint: str = "ask for a smaller part") -> str:
    """Return `text` within `max_bytes` of UTF-8, its marker included; text that fits comes back as it is."""
    data = text.encode("utf-8")
    if len(data) <= max_bytes:
        return text
    marker = f"\n[cut: {len(data)} bytes in all, over the limit of {max_bytes}; {hint}]"
    room = max(max_bytes - len(marker.encode("utf-8")), 0)
    return data[:room].decode("utf-8", "ignore") + marker
