"""Every form in which providers state a wait, valid or not."""

from datetime import UTC, datetime

import pytest

from orga.activities.adapters.models.errors import retry_after_s, stated_wait

NOW = datetime(2026, 1, 31, 23, 59, 50, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({}, None, id="nothing stated"),
        pytest.param({"retry-after": "7"}, 7.0, id="seconds"),
        pytest.param({"retry-after": "0.25"}, 0.25, id="fractions of a second"),
        pytest.param({"retry-after": "0"}, 0.0, id="at once"),
        pytest.param({"retry-after-ms": "1500", "retry-after": "2"}, 1.5, id="milliseconds are more exact"),
        pytest.param(
            {"retry-after-ms": "soon", "retry-after": "2"}, 2.0, id="an invalid value is skipped for the next form"
        ),
        pytest.param({"retry-after": "Sun, 01 Feb 2026 00:00:20 GMT"}, 30.0, id="a date"),
        pytest.param({"retry-after": "Sun, 01 Feb 2026 02:00:20 +0200"}, 30.0, id="a date of another zone"),
        pytest.param({"retry-after": "Sun, 01 Feb 2026 00:00:20"}, 30.0, id="a date without zone is UTC"),
        pytest.param({"retry-after": "Sat, 31 Jan 2026 23:00:00 GMT"}, None, id="a date that is past"),
        pytest.param({"retry-after": "-5"}, None, id="negative"),
        pytest.param({"retry-after": "nan"}, None, id="not a number"),
        pytest.param({"retry-after": "inf"}, None, id="for ever"),
        pytest.param({"retry-after": "99999999"}, None, id="years"),
        pytest.param({"retry-after": "tomorrow"}, None, id="a word"),
        pytest.param({"retry-after": "Mon, 01 Jan 2024 00:00:00 +" + "9" * 20}, None, id="an invalid zone"),
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
        pytest.param({"retry-after": "2", "x-ratelimit-reset-tokens": "9s"}, 2.0, id="the direct wait wins"),
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
        pytest.param({"x-ms-retry-after-ms": "700"}, 0.7, id="Azure's milliseconds"),
        pytest.param({"retry-after": "1m30s"}, 90.0, id="a duration in place of seconds"),
        pytest.param({"x-ratelimit-reset-tokens": "59"}, 59.0, id="Azure's seconds"),
        pytest.param({"ratelimit-reset": "30", "ratelimit-remaining": "0"}, 30.0, id="IETF, a header each"),
        pytest.param({"ratelimit": "limit=100, remaining=0, reset=30"}, 30.0, id="IETF, one header"),
        pytest.param({"ratelimit": '"burst";r=0;t=3, "daily";r=500;t=43200'}, 3.0, id="IETF, several policies"),
        pytest.param({"x-ratelimit": '"default";r=0;t=8'}, 8.0, id="IETF, with the old prefix"),
        pytest.param({"ratelimit": "gibberish"}, None, id="a header of no form"),
        pytest.param(
            {
                "x-ratelimit-reset-requests-day": "33011.38",
                "x-ratelimit-remaining-requests-day": "1200",
                "x-ratelimit-reset-tokens-minute": "11.5",
                "x-ratelimit-remaining-tokens-minute": "0",
            },
            11.5,
            id="Cerebras' limits of two lengths",
        ),
    ],
)
def test_the_stated_wait_is_read_from_the_headers(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_s(headers, NOW, rate_limited=True) == pytest.approx(expected)


def test_resets_of_limits_count_only_after_a_rate_limit() -> None:
    """Providers send these headers with every response, even with a 500."""
    assert retry_after_s({"x-ratelimit-reset-tokens": "9s"}, NOW, rate_limited=False) is None
    assert retry_after_s({"retry-after": "2"}, NOW, rate_limited=False) == 2.0


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        pytest.param(
            "Rate limit reached … Used 99857, Requested 1297. Please try again in 8.2s. Visit …", 8.2, id="OpenAI"
        ),
        pytest.param("Please try again in 8h18m31.68s. Need more tokens?", 29_911.68, id="OpenAI, hours"),
        pytest.param("Please try again in 120ms.", 0.12, id="Groq, milliseconds"),
        pytest.param("Please try again in 20 seconds", 20.0, id="words"),
        pytest.param("Please retry after 26 seconds.", 26.0, id="Azure"),
        pytest.param("Please retry in 21.124101106s.", 21.124101106, id="Gemini"),
        pytest.param("Please wait 30 seconds before your next request", 30.0, id="wait"),
        pytest.param("Please wait for 5 min", 300.0, id="wait for"),
        pytest.param("Your quota will reset after 1h16m0.667s.", 4_560.667, id="reset after"),
        pytest.param("Rate limit resets in 12s", 12.0, id="resets in"),
        pytest.param("Try again in 2 minutes and 30 seconds.", 150.0, id="two units in words"),
        pytest.param("Retry-After: 3 s", 3.0, id="a header in the text"),
        pytest.param("请在 30 秒后重试", 30.0, id="Chinese"),
        pytest.param("timed out after 60 seconds, please try again", None, id="an elapsed time is no wait"),
        pytest.param("at most 3 requests per 60 s; try again", None, id="a rate is no wait"),
        pytest.param("try again in 3 parsecs", None, id="no unit of time"),
        pytest.param("try again in 99999999 hours", None, id="years"),
        pytest.param("please try again later", None, id="no number"),
    ],
)
def test_the_wait_stated_in_a_sentence_is_read(sentence: str, expected: float | None) -> None:
    assert stated_wait(None, sentence) == pytest.approx(expected)


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "21s"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param({"error": {"code": 429, "details": [{"@type": "…QuotaFailure"}, RETRY_INFO]}}, 21.0, id="Google"),
        pytest.param({"error": {"metadata": {"quotaResetDelay": "1h16m0.5s"}}}, 4_560.5, id="Google, its quota"),
        pytest.param({"retry_after": 5}, 5.0, id="seconds"),
        pytest.param({"error": {"metadata": {"retry_after_seconds": 7.5}}}, 7.5, id="OpenRouter"),
        pytest.param({"detail": [{"retryAfterMs": "1500"}]}, 1.5, id="milliseconds in a list"),
        pytest.param({"retry_after": -1, "error": {"retry_after": 2}}, 2.0, id="nonsense before sense"),
        pytest.param({"retry_after": True, "retryDelay": None}, None, id="no number"),
        pytest.param({"retry_after": [0] * 1_000_000}, None, id="a long list"),
    ],
)
def test_the_wait_stated_in_a_body_is_read(body: object, expected: float | None) -> None:
    assert stated_wait(body, "Please try again later") == pytest.approx(expected)


def test_a_header_wins_over_the_body_and_the_body_over_a_reset() -> None:
    headers = {"x-ratelimit-reset-tokens": "9s"}
    assert retry_after_s(headers, NOW, rate_limited=True, in_body=4.0) == 4.0
    assert retry_after_s(headers | {"retry-after": "2"}, NOW, rate_limited=True, in_body=4.0) == 2.0
    assert retry_after_s(headers, NOW, rate_limited=False, in_body=4.0) == 4.0
