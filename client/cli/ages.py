"""How long ago something was, as people say it."""

from datetime import datetime
from math import ceil

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def time_left(until: datetime, now: datetime) -> str:
    """Return `42 s`, `5 min`, `1 h 30 min`, `2 d 4 h`: the two largest units, a begun minute counted whole."""
    seconds = max(ceil((until - now).total_seconds()), 0)
    if seconds < 60:
        return f"{seconds} s"
    rest, parts = -(-seconds // 60) * 60, list[str]()
    for unit, length in _UNITS:
        count, rest = divmod(rest, length)
        parts += [f"{count} {unit}"] if count else ["0"] if parts else []
    return " ".join(part for part in parts[:2] if part != "0")


def age(since: datetime, now: datetime) -> str:
    """Return `42 s`, `3 min`, `5 h`, `2 d`: whole units, the largest that fits."""
    seconds = max(int((now - since).total_seconds()), 0)
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
