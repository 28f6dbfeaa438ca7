"""Every form in which providers say how long to wait, and the nonsense that they say too."""

from datetime import UTC, datetime

import pytest

from orga.activities.adapters.models.retry_after import retry_after_s

NOW = datetime(2026, 1, 31, 23, 59, 50, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({}, None, id="nothing stated"),
        pytest.param({"retry-after": "7"}, 7.0, id="seconds"),
        pytest.param({"retry-after": "0.25"}, 0.25, id="fractions of a second"),
        pytest.param({"retry-after": "0"}, 0.0, id="at once"),
        pytest.param({"retry-after-ms": "1500", "retry-after": "2"}, 1.5, id="milliseconds are more exact"),
        pytest.param({"retry-after-ms": "soon", "retry-after": "2"}, 2.0, id="nonsense gives way to the next form"),
        pytest.param({"retry-after": "Sun, 01 Feb 2026 00:00:20 GMT"}, 30.0, id="a date"),
        pytest.param({"retry-after": "Sun, 01 Feb 2026 02:00:20 +0200"}, 30.0, id="a date of another zone"),
        pytest.param({"retry-after": "Sun, 01 Feb 2026 00:00:20"}, 30.0, id="a date without zone is UTC"),
        pytest.param({"retry-after": "Sat, 31 Jan 2026 23:00:00 GMT"}, None, id="a date that is past"),
        pytest.param({"retry-after": "-5"}, None, id="negative"),
        pytest.param({"retry-after": "nan"}, None, id="not a number"),
        pytest.param({"retry-after": "inf"}, None, id="for ever"),
        pytest.param({"retry-after": "99999999"}, None, id="years"),
        pytest.param({"retry-after": "tomorrow"}, None, id="a word"),
        pytest.param({"retry-after": "Mon, 01 Jan 2024 00:00:00 +" + "9" * 20}, None, id="a zone that there is not"),
        pytest.param({"retry-after": ""}, None, id="empty"),
        pytest.param({"x-ratelimit-reset-requests": "6m0s"}, 360.0, id="a duration"),
        pytest.param({"x-ratelimit-reset-tokens": "120ms"}, 0.12, id="a duration in milliseconds"),
        pytest.param({"x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5, id="a long duration"),
        pytest.param({"x-ratelimit-reset-tokens": "12 parsecs"}, None, id="no duration"),
        pytest.param(
            {"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "9s"}, 9.0, id="the longest of both limits"
        ),
        pytest.param(
            {
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-tokens": "9s",
                "x-ratelimit-remaining-tokens": "4000",
            },
            1.0,
            id="the limit that is exhausted",
        ),
        pytest.param({"retry-after": "2", "x-ratelimit-reset-tokens": "9s"}, 2.0, id="the direct wish wins"),
        pytest.param(
            {"anthropic-ratelimit-input-tokens-reset": "2026-02-01T00:00:00Z"}, 10.0, id="a limit's reset as RFC 3339"
        ),
        pytest.param(
            {"anthropic-ratelimit-requests-reset": "2026-02-01T01:00:05+01:00"}, 15.0, id="RFC 3339 of another zone"
        ),
        pytest.param({"anthropic-ratelimit-tokens-reset": "2026-01-31T23:00:00Z"}, None, id="a reset that is past"),
        pytest.param({"x-ratelimit-reset": str(int(NOW.timestamp() * 1000) + 2500)}, 2.5, id="epoch milliseconds"),
        pytest.param({"x-ratelimit-reset": str(int(NOW.timestamp()) + 4)}, 4.0, id="epoch seconds"),
        pytest.param({"x-ratelimit-reset": "3"}, 3.0, id="seconds from now"),
    ],
)
def test_the_wait_that_is_stated(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_s(headers, NOW, rate_limited=True) == pytest.approx(expected)


def test_limits_count_only_when_one_was_hit() -> None:
    """Providers send them with every answer, a 500 too."""
    assert retry_after_s({"x-ratelimit-reset-tokens": "9s"}, NOW, rate_limited=False) is None
    assert retry_after_s({"retry-after": "2"}, NOW, rate_limited=False) == 2.0
