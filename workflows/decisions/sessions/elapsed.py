"""How long ago something was, in words."""

from __future__ import annotations

HOUR_S = 3_600
_DAY_S = 24 * HOUR_S

_UNITS = (
    ("year", 365 * _DAY_S, 2 * 365 * _DAY_S),
    ("month", 30 * _DAY_S, 60 * _DAY_S),
    ("week", 7 * _DAY_S, 14 * _DAY_S),
    ("day", _DAY_S, _DAY_S),
    ("hour", HOUR_S, HOUR_S),
)
"""Each with its seconds, and those from which on it is used."""


def elapsed_words(seconds: float) -> str:
    """Return the time in its largest fitting unit, rounded down: `3 days`; "" for less than an hour."""
    for name, unit, least in _UNITS:
        if seconds >= least:
            count = int(seconds // unit)
            return f"{count} {name}" if count == 1 else f"{count} {name}s"
    return ""
