"""How long a provider asks us to wait, in seconds, from the headers of its answer."""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_S = 7 * 86_400.0
"""A wish beyond a week is taken for nonsense."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_MAX_DURATION_CHARS = 64
_UNIT_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_OPENAI = ("requests", "tokens")
_ANTHROPIC = ("requests", "tokens", "input-tokens", "output-tokens")


def retry_after_s(headers: Mapping[str, str], now: datetime, *, rate_limited: bool) -> float | None:
    """Return the wait, or None when none is stated in a form that makes sense.

    `retry-after-ms` wins over `retry-after`, that over the limits' reset times, which are read only when a limit was
    hit: providers send them with every answer.

    Args:
        headers: Names in lower case, or a case-insensitive mapping.
        now: What absolute times are measured against.
        rate_limited: Whether the answer was 429.
    """
    stated = _first(
        _sane(_number(headers.get("retry-after-ms")), 0.001),
        _sane(_number(headers.get("retry-after"))),
        _sane(_until(_http_date(headers.get("retry-after")), now)),
    )
    if stated is not None or not rate_limited:
        return stated
    return _first(
        _reset_s(headers, "x-ratelimit-{1}-{0}", _OPENAI, now),
        _reset_s(headers, "anthropic-ratelimit-{0}-{1}", _ANTHROPIC, now),
        _sane(_epoch(headers.get("x-ratelimit-reset"), now)),
    )


def _reset_s(headers: Mapping[str, str], form: str, limits: Iterable[str], now: datetime) -> float | None:
    """Return the longest reset of the exhausted limits, or of all when none says it is exhausted."""
    resets: dict[str, float] = {}
    for limit in limits:
        text = headers.get(form.format(limit, "reset"))
        reset = _first(_sane(_duration(text)), _sane(_until(_rfc3339(text), now)))
        if reset is not None:
            resets[limit] = reset
    spent = [s for limit, s in resets.items() if _number(headers.get(form.format(limit, "remaining"))) == 0]
    return max(spent or resets.values(), default=None)


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _sane(value: float | None, unit_s: float = 1.0) -> float | None:
    if value is None or not math.isfinite(value) or not 0 <= value * unit_s <= LONGEST_S:
        return None
    return value * unit_s


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _duration(text: str | None) -> float | None:
    parts = _DURATION.findall(text) if text and len(text) <= _MAX_DURATION_CHARS else []
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)


def _http_date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if text else None
    except (ValueError, OverflowError):
        return None


def _rfc3339(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def _until(moment: datetime | None, now: datetime) -> float | None:
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp()


def _epoch(text: str | None, now: datetime) -> float | None:
    """Read milliseconds since the epoch (OpenRouter), seconds since it, or seconds from now, told apart by size."""
    value = _number(text)
    if value is None or value < 1e9:
        return value
    return (value / 1000 if value >= 1e11 else value) - now.timestamp()
