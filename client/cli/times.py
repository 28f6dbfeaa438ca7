"""Times and lengths of time as people write them on the command line."""

import re
from datetime import datetime, timedelta

from orga.client.cli.exit_codes import UsageError
from orga.workflows.types.text import as_line

_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_LENGTH = re.compile(r"(?:[0-9]{1,9}[wdhms])+")
_PART = re.compile(r"(\d+)([wdhms])")


def length_of(text: str, option: str) -> timedelta:
    """Return what `90s`, `5m`, `1h30m`, `2d` or `1w` stands for.

    Raises:
        UsageError: Something else.
    """
    if not _LENGTH.fullmatch(text):
        raise UsageError(f"{option} {as_line(text)!r}: write a length of time as 90s, 5m, 1h30m, 2d or 1w")
    return timedelta(seconds=sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text)))


def time_of(text: str, option: str) -> datetime:
    """Return a time, without a zone where none is written.

    Raises:
        UsageError: It is none.
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {as_line(text)!r}: write a time as 2026-12-31T18:00, or with +01:00") from None
