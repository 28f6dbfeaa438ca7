"""How long ago something was, as people say it."""

from datetime import datetime

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def age(since: datetime, now: datetime) -> str:
    """Return `42 s`, `3 min`, `5 h`, `2 d`: whole units, the largest that fits."""
    seconds = max(int((now - since).total_seconds()), 0)
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
