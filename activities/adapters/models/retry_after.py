"""How long a provider asks us to wait, in seconds: from the headers, the body and the sentences of its answer."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

LONGEST_S = 7 * 86_400.0
"""A wish beyond a week is taken for nonsense."""

_UNITS = (
    ("ms", 0.001, r"ms|msecs?|milliseconds?|毫秒"),
    ("s", 1.0, r"s|secs?|seconds?|秒钟?"),
    ("m", 60.0, r"m|mins?|minutes?|分钟?"),
    ("h", 3_600.0, r"h|hrs?|hours?|小时"),
    ("d", 86_400.0, r"d|days?|天"),
)
_UNIT = "|".join(f"(?P<{name}>{spellings})" for name, _, spellings in _UNITS)
_PIECE = re.compile(rf"(\d+(?:\.\d+)?)\s*(?:{_UNIT})(?![a-z])(?:,?\s*(?:and\s+)?)", re.IGNORECASE)
_PIECES = rf"(?:\d+(?:\.\d+)?\s*(?:{re.sub(r'[?]P<[a-z]+>', '?:', _UNIT)})(?![a-z]),?\s*(?:and\s+)?)+"
_MAX_DURATION_CHARS = 64

SENTENCES = (
    ("OpenAI, Groq", r"try again in"),  # 8.2s, 6m0s, 8h18m31.68s, 20 seconds
    ("Azure", r"(?:retry|try again) after"),  # 26 seconds
    ("Gemini", r"retry in"),  # 21.124101106s
    ("Cerebras, Together", r"wait (?:for |at least |about |another )*"),
    ("Copilot, Codex", r"(?:resets?|available|renews?) (?:again )?(?:in|after)"),
    ("OpenRouter", r"retry[-_ ]after(?:[-_ ]seconds)?[\"']?\s*[:=]\s*"),
    ("Zhipu, DashScope", r"请(?:在|等待|于)?"),  # 请在 30 秒后重试
)
"""Provider, and a regular expression for the text before the duration; letter case is ignored."""

BODY_KEYS = {
    "retrydelay": 1.0,  # Google: RetryInfo among error.details, "21s"
    "quotaresetdelay": 1.0,  # Google, too
    "retry_after": 1.0,
    "retryafter": 1.0,
    "retry_after_seconds": 1.0,  # OpenRouter
    "retryafterseconds": 1.0,
    "retry_after_ms": 0.001,
    "retryafterms": 0.001,
    "retry_after_millis": 0.001,
}
"""Keys of an error's JSON, in lower case, that hold a wait: a number of so many seconds, or a duration."""

_SENTENCE = re.compile(
    rf"(?:{'|'.join(before for _, before in SENTENCES)})[\s\"'~:]*(?:about |approximately )?({_PIECES})", re.IGNORECASE
)
_MAX_PARTS = 500
"""Of an error's JSON that are gone through."""


def retry_after_s(
    headers: Mapping[str, str], now: datetime, *, rate_limited: bool, in_body: float | None = None
) -> float | None:
    """Return the wait, or None when none is stated in a form that makes sense.

    A direct wish in the headers comes first, then that of the body, then the limits' reset times. Those are read
    only when a limit was hit: providers send them with every answer.

    Args:
        headers: Names in lower case, or a case-insensitive mapping.
        now: What absolute times are measured against.
        rate_limited: Whether the answer was 429.
        in_body: What `stated_wait` found in the body.
    """
    direct = next((wait for wait in _direct(headers, now) if wait is not None), in_body)
    return _reset_s(headers, now) if direct is None and rate_limited else direct


def stated_wait(error: object, message: str) -> float | None:
    """Return the wait that the JSON of an error states, else the one that its message does."""
    sentence = _SENTENCE.search(message)
    return _first(*_waits_in(error), _sane(_duration(sentence[1])) if sentence else None)


def _direct(headers: Mapping[str, str], now: datetime) -> Iterator[float | None]:
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        yield _sane(_number(headers.get(name)), 0.001)
    text = headers.get("retry-after")
    yield _first(_sane(_number(text)), _sane(_duration(text)), _sane(_until(_http_date(text), now)))


def _reset_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the longest reset of the exhausted limits, or of all limits if none is marked as exhausted.

    `x-ratelimit-reset-tokens` (OpenAI, Groq, Azure, Cerebras), `anthropic-ratelimit-tokens-reset`, `x-ratelimit-reset`
    (OpenRouter) and `ratelimit-reset` each have a header of their own for what remains; `ratelimit` (IETF) holds both.
    """
    resets: list[tuple[float, bool]] = []
    for name in headers:
        if name.endswith("ratelimit"):
            resets += _ietf(headers[name])
        elif "ratelimit" in name and "reset" in name:
            text = headers[name]
            wait = _first(_sane(_duration(text)), _sane(_epoch(text, now)), _sane(_until(_rfc3339(text), now)))
            if wait is not None:
                resets.append((wait, _number(headers.get(name.replace("reset", "remaining"))) == 0))
    return max([wait for wait, is_spent in resets if is_spent] or [wait for wait, _ in resets], default=None)


def _ietf(text: str) -> Iterator[tuple[float, bool]]:
    """Yield wait and exhaustion of `"name";r=0;t=30, …` and of the older `limit=10, remaining=0, reset=30`."""
    policies = text.split(",") if ";" in text else [text]
    for policy in policies:
        fields = dict(re.findall(r"\b(\w+)\s*=\s*(\d+)", policy))
        wait = _sane(_number(fields.get("t", fields.get("reset"))))
        if wait is not None:
            yield wait, fields.get("r", fields.get("remaining")) == "0"


def _waits_in(error: object) -> Iterator[float | None]:
    """Yield the waits under the known keys, outermost first."""
    waiting: list[object] = [error]
    for part in waiting:
        if isinstance(part, dict):
            for key, value in cast("dict[str, Any]", part).items():
                if unit := BODY_KEYS.get(key.lower()):
                    yield _first(
                        _sane(_number(value), unit), _sane(_duration(value if isinstance(value, str) else None))
                    )
                waiting.append(value)
        elif isinstance(part, list):
            waiting += cast("list[object]", part)
        del waiting[_MAX_PARTS:]


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _sane(value: float | None, unit_s: float = 1.0) -> float | None:
    if value is None or not math.isfinite(value) or not 0 <= value * unit_s <= LONGEST_S:
        return None
    return value * unit_s


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _duration(text: str | None) -> float | None:
    if not text or len(text) > _MAX_DURATION_CHARS or not re.fullmatch(_PIECES, text.strip(), re.IGNORECASE):
        return None
    unit_s = {name: seconds for name, seconds, _ in _UNITS}
    return sum(float(piece[1]) * unit_s[str(piece.lastgroup)] for piece in _PIECE.finditer(text))


def _http_date(text: str | None) -> datetime | None:
    return _moment(parsedate_to_datetime, text)


def _rfc3339(text: str | None) -> datetime | None:
    return _moment(datetime.fromisoformat, text)


def _moment(read: Callable[[str], datetime], text: str | None) -> datetime | None:
    try:
        return read(text) if text else None
    except (ValueError, OverflowError):
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
