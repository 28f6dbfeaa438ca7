"""Failures of model calls: which are retried, after which delay, and that their text contains no secret."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models.errors import ProviderFailures, redacted_text
from orga.activities.ports import ModelError
from tests.support.model.providers import KEY, complete_request


async def failure(kind: str, answer: http.Response | Exception) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await complete_request(kind, answer)
    return caught.value


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("status", "expected", "retryable"),
    [
        (400, "InvalidRequest", False),
        (401, "AuthenticationFailed", False),
        (402, "OutOfQuota", False),
        (403, "PermissionDenied", False),
        (404, "ModelNotFound", False),
        (408, "Timeout", True),
        (409, "ServerError", True),
        (413, "RequestTooLarge", False),
        (422, "InvalidRequest", False),
        (429, "RateLimited", True),
        (500, "ServerError", True),
        (502, "ServerError", True),
        (503, "Overloaded", True),
        (504, "Timeout", True),
        (529, "Overloaded", True),
        (302, "InvalidRequest", False),
    ],
)
async def test_each_status_has_its_kind_and_retry_rule(kind: str, status: int, expected: str, retryable: bool) -> None:
    error = await failure(kind, http.Response(status, json={"error": {"message": "because"}}))
    assert (error.kind, error.retryable) == (expected, retryable)
    place = " at https://models.test/v1" if status == 404 else ""
    assert str(error) == f"{kind} answered {status}{place}: because"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        pytest.param(
            '<!DOCTYPE html>\n<html><head lang="en"><title> 502 Bad &amp; Gateway</title></head><body>nginx</body>',
            "a web page: 502 Bad & Gateway nginx",
            id="of a proxy",
        ),
        pytest.param("<html> cut <of", "a web page: cut <of", id="cut off"),
        pytest.param("upstream <html> failed", "upstream <html> failed", id="no page"),
    ],
)
async def test_a_web_page_is_shown_as_its_text(page: str, expected: str) -> None:
    error = await failure("openai", http.Response(502, text=page))
    assert str(error) == f"openai answered 502: {expected}"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(410, {"error": {"message": "gone"}}, id="gone"),
        pytest.param(
            400,
            {
                "error": {
                    "message": "The model `llama3-70b-8192` has been decommissioned and is no longer supported.",
                    "code": "model_decommissioned",
                }
            },
            id="Groq",
        ),
        pytest.param(
            400, {"error": {"message": "The model `davinci-3` has been deprecated, learn more"}}, id="OpenAI, retired"
        ),
        pytest.param(400, {"error": {"message": "Model Not Exist", "type": "invalid_request_error"}}, id="DeepSeek"),
        pytest.param(400, {"error": {"message": "acme/x is not a valid model ID", "code": 400}}, id="OpenRouter"),
        pytest.param(
            400, {"error": {"message": "Invalid model name passed in model=x. Call `/v1/models`"}}, id="LiteLLM"
        ),
        pytest.param(400, {"message": "The provided model identifier is invalid."}, id="Bedrock"),
        pytest.param(400, {"error": {"code": "1211", "message": "模型不存在，请检查模型代码。"}}, id="Zhipu"),
        pytest.param(400, {"error": "model 'qwen9' not found, try pulling it first"}, id="Ollama"),
        pytest.param(
            403, {"error": {"message": "The model `m` does not exist or you do not have access to it."}}, id="xAI"
        ),
    ],
)
async def test_a_model_that_the_provider_does_not_have_has_its_kind(status: int, body: Any) -> None:
    error = await failure("openai", http.Response(status, json=body))
    assert (error.kind, error.retryable) == ("ModelNotFound", False)


@pytest.mark.parametrize(
    "message",
    [
        "`temperature` is deprecated for this model.",
        "Unsupported value: 'temperature' does not support 0.2 with this model.",
        "The model m does not support the parameter `seed`",
        "Unrecognized request argument supplied: model_settings",
        "messages: image not found in model input",
        "tools.0: tool does not exist for model m",
        "Invalid model parameter: top_k",
    ],
)
async def test_a_refused_parameter_says_nothing_about_the_model(message: str) -> None:
    assert (await failure("openai", http.Response(400, json={"error": {"message": message}}))).kind == "InvalidRequest"


@pytest.mark.parametrize("url", ["", "http://☃☃.test/v1", "http://[::1"])
def test_an_unreadable_address_is_left_out(url: str) -> None:
    failures = ProviderFailures("openai-compatible", base_url=url)
    assert str(failures.from_response(404, {}, "{}")).startswith("openai-compatible answered 404: ")


async def test_an_address_is_named_without_its_secrets() -> None:
    failures = ProviderFailures("openai-compatible", base_url="http://ann:pw@host:8931/api?key=abc")
    found = str(failures.from_response(404, {}, "{}"))
    assert found.startswith("openai-compatible answered 404 at http://host:8931/api (most servers need an address")
    refused = str(failures.from_transport(http.ConnectError("refused"), reading=False))
    assert refused == "openai-compatible can't be reached at http://host:8931/api: ConnectError refused"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(
            400,
            {"error": {"message": "Too many.", "code": "context_length_exceeded", "type": "invalid_request_error"}},
            id="OpenAI by code",
        ),
        pytest.param(
            400, {"error": {"message": "prompt is too long: 208310 tokens > 200000 maximum"}}, id="Anthropic by words"
        ),
        pytest.param(
            400,
            {"error": {"message": "input length and `max_tokens` exceed context limit: 190000 + 16384 > 200000"}},
            id="Anthropic, both together",
        ),
        pytest.param(
            400,
            {"message": "This model's maximum context length is 8192 tokens. However, you requested 9000"},
            id="vLLM",
        ),
        pytest.param(
            400,
            {"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it"}},
            id="llama.cpp",
        ),
        pytest.param(
            400,
            [{"error": {"message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."}}],
            id="Gemini, in a list",
        ),
        pytest.param(
            400,
            {"error": {"message": "Provider returned error", "metadata": {"raw": "prompt is too long: 9 > 8"}}},
            id="through OpenRouter",
        ),
        pytest.param(413, {"error": {"message": "Please reduce the length of the messages or completion."}}, id="Groq"),
    ],
)
async def test_a_context_overflow_is_recognised(status: int, body: Any) -> None:
    error = await failure("openai", http.Response(status, json=body))
    assert (error.kind, error.retryable) == ("ContextOverflow", False)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(
            400,
            {
                "error": {
                    "message": "The response was filtered due to the prompt triggering Azure OpenAI's content "
                    "management policy. Please modify your prompt and retry.",
                    "param": "prompt",
                    "code": "content_filter",
                    "innererror": {"code": "ResponsibleAIPolicyViolation"},
                }
            },
            id="Azure",
        ),
        pytest.param(
            400,
            {"error": {"message": "litellm.ContentPolicyViolationError: AzureException", "type": None, "code": "400"}},
            id="LiteLLM",
        ),
        pytest.param(
            400,
            {
                "error": {
                    "message": "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
                    "type": "invalid_request_error",
                    "code": "invalid_prompt",
                }
            },
            id="OpenAI",
        ),
        pytest.param(
            400,
            {
                "type": "error",
                "error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"},
            },
            id="Anthropic",
        ),
        pytest.param(
            400, {"error": {"message": "Content Exists Risk", "code": "invalid_request_error"}}, id="DeepSeek"
        ),
        pytest.param(
            400,
            {
                "error": {
                    "code": "data_inspection_failed",
                    "message": "<400> InternalError.Algo.DataInspectionFailed: Input text data may contain "
                    "inappropriate content.",
                }
            },
            id="Qwen",
        ),
        pytest.param(
            400,
            {
                "error": {
                    "message": "The request was rejected because it was considered high risk",
                    "type": "content_filter",
                }
            },
            id="Kimi",
        ),
        pytest.param(
            403,
            {
                "error": {
                    "code": 403,
                    "message": 'openai/gpt requires moderation on OpenAI. Your input was flagged for "violence".',
                }
            },
            id="OpenRouter",
        ),
        pytest.param(
            400, {"error": {"code": "1301", "message": "系统检测到输入或生成内容可能包含不安全或敏感内容"}}, id="Zhipu"
        ),
        pytest.param(403, {"code": "x", "error": "Content violates usage guidelines."}, id="xAI"),
        pytest.param(400, {"detail": "Content Exists Risk"}, id="a detail alone"),
    ],
)
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_refusal_by_a_content_filter_is_recognised(kind: str, status: int, body: Any) -> None:
    error = await failure(kind, http.Response(status, json=body))
    assert (error.kind, error.retryable) == ("ContentRefused", False)


@pytest.mark.parametrize(
    "message",
    [
        "messages.0.content: Input should be a valid list",
        "Unsupported parameter: 'safety_settings' is not supported with this model.",
        "Invalid value: 'content_filters'.",
        "tools.0: the name violates the pattern",
        "Your organization does not have access to this model.",
    ],
)
@pytest.mark.parametrize("status", [400, 403])
async def test_any_other_refusal_is_not_a_content_filter(status: int, message: str) -> None:
    error = await failure("openai", http.Response(status, json={"error": {"message": message}}))
    assert error.kind in {"InvalidRequest", "PermissionDenied"}


async def test_a_limit_on_output_tokens_is_not_a_context_overflow() -> None:
    words = "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the"
    error = await failure("anthropic", http.Response(400, json={"error": {"message": f"{words} `context_window`"}}))
    assert error.kind == "InvalidRequest"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}),
        (429, {"message": "Your account is not active", "code": "billing_not_active"}),
        (400, {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API"}),
        (400, {"type": "invalid_request_error", "message": "You have reached your specified API usage limits."}),
        (403, {"message": "Key limit exceeded (total limit)", "code": 403}),
        (402, {"message": "Insufficient credits", "code": 402}),
    ],
)
async def test_an_empty_account_is_not_retried(status: int, body: dict[str, Any]) -> None:
    """OpenAI answers 429, Anthropic 400, routers 403. Waiting does not help, but another model may."""
    error = await failure("openai", http.Response(status, json={"error": body}))
    assert (error.kind, error.retryable) == ("OutOfQuota", False)


async def test_a_rate_limit_is_not_an_empty_account() -> None:
    body = {"error": {"message": "Rate limit reached for requests", "code": "rate_limit_exceeded"}}
    error = await failure("openai", http.Response(429, json=body, headers={"retry-after": "3"}))
    assert (error.kind, error.retryable, error.retry_after_s) == ("RateLimited", True, 3.0)


@pytest.mark.parametrize(
    ("status", "headers", "retryable", "wait"),
    [
        pytest.param(429, {"retry-after": "3"}, True, 3.0, id="seconds"),
        pytest.param(429, {"Retry-After-Ms": "250"}, True, 0.25, id="milliseconds"),
        pytest.param(429, {"x-ratelimit-reset-tokens": "6m0s"}, True, 360.0, id="a limit's reset"),
        pytest.param(503, {"retry-after": "9"}, True, 9.0, id="overload"),
        pytest.param(429, {}, True, None, id="not stated"),
        pytest.param(
            429, {"x-should-retry": "false", "retry-after": "3"}, False, None, id="retry forbidden by a header"
        ),
        pytest.param(400, {"x-should-retry": "true"}, True, None, id="retry requested by a header"),
        pytest.param(400, {"retry-after": "3"}, False, None, id="no wait without retry"),
        pytest.param(429, {"ratelimit": '"default";r=0;t=30'}, True, 30.0, id="an IETF header"),
    ],
)
async def test_the_stated_wait_is_kept_in_the_error(
    status: int, headers: dict[str, str], retryable: bool, wait: float | None
) -> None:
    error = await failure("openai", http.Response(status, headers=headers, text="no"))
    assert (error.retryable, error.retry_after_s) == (retryable, wait)


@pytest.mark.parametrize(
    ("body", "wait"),
    [
        pytest.param({"error": {"message": "Please try again in 8.2s."}}, 8.2, id="a sentence"),
        pytest.param(
            [{"error": {"code": 429, "message": "Quota", "details": [{"retryDelay": "21s"}]}}], 21.0, id="Gemini's list"
        ),
        pytest.param("Too many requests. Please wait 30 seconds.", 30.0, id="plain text"),
    ],
)
async def test_the_wait_stated_in_a_body_is_kept_in_the_error(body: Any, wait: float) -> None:
    answer = http.Response(429, text=body) if isinstance(body, str) else http.Response(429, json=body)
    error = await failure("openai", answer)
    assert (error.kind, error.retry_after_s) == ("RateLimited", wait)


async def test_a_request_above_a_limit_per_minute_is_a_context_overflow() -> None:
    """Waiting does not help. The loop has to send less."""
    words = "Request too large for gpt-4o on tokens per min (TPM): Limit 3000, Requested 45000. Please try again in 9s."
    error = await failure("openai", http.Response(429, json={"error": {"message": words}}))
    assert (error.kind, error.retryable) == ("ContextOverflow", False)


async def test_a_retry_date_is_converted_to_a_delay() -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    error = await failure("openai", http.Response(429, headers={"retry-after": moment}))
    assert error.retry_after_s == pytest.approx(90, abs=5)


async def test_openrouter_forwards_the_headers_of_the_provider() -> None:
    reset = str(int((datetime.now(UTC).timestamp() + 30) * 1000))
    body = {"error": {"code": 429, "message": "Rate limit", "metadata": {"headers": {"X-RateLimit-Reset": reset}}}}
    error = await failure("openrouter", http.Response(429, json=body))
    assert error.retry_after_s == pytest.approx(30, abs=5)


@pytest.mark.parametrize(
    ("error", "retryable", "wait"),
    [
        pytest.param(
            {"code": 429, "metadata": {"headers": {"Retry-After": "7"}}}, True, 7.0, id="forwarded by a router"
        ),
        pytest.param({"code": 503, "headers": {"retry-after": 9}}, True, 9.0, id="in its own headers"),
        pytest.param({"code": 429, "headers": {"x-ratelimit-reset-tokens": "6m0s"}}, True, 360.0, id="a limit's reset"),
        pytest.param({"code": 429}, True, None, id="not stated"),
        pytest.param({"code": 400, "headers": {"retry-after": "3"}}, False, None, id="no wait without retry"),
    ],
)
@pytest.mark.parametrize("in_choice", [False, True])
async def test_the_wait_of_an_error_with_status_200_is_kept(
    error: dict[str, Any], retryable: bool, wait: float | None, in_choice: bool
) -> None:
    body = {"choices": [{"index": 0, "error": error}]} if in_choice else {"error": error}
    caught = await failure("openrouter", http.Response(200, json=body))
    assert (caught.retryable, caught.retry_after_s) == (retryable, wait)


@pytest.mark.parametrize(
    ("raised", "kind", "retryable"),
    [
        (httpx.ConnectError("refused"), "ConnectionFailed", True),
        (httpx.ConnectTimeout("slow"), "Timeout", True),
        (httpx.ReadTimeout(""), "Timeout", True),
        (httpx.RemoteProtocolError("peer closed"), "ConnectionFailed", True),
        (httpx.UnsupportedProtocol("ftp"), "InvalidRequest", False),
    ],
)
async def test_each_connection_failure_has_its_kind(raised: Exception, kind: str, retryable: bool) -> None:
    error = await failure("openai", raised)
    assert (error.kind, error.retryable) == (kind, retryable)


async def test_a_connection_lost_during_the_reply_is_a_bad_stream() -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
        raise httpx.ReadError("reset")

    answer = http.Response(200, headers={"content-type": "text/event-stream"}, content=content())
    error = await failure("openai", answer)
    assert (error.kind, error.retryable) == ("BadStream", True)


async def test_an_error_never_contains_the_key() -> None:
    message = f"Incorrect API key provided: {KEY}. Authorization: Bearer {KEY} " + "x" * 1000
    error = await failure("openai", http.Response(401, json={"error": {"message": message}}))
    assert KEY not in str(error)
    assert KEY[8:] not in str(error)
    assert len(str(error)) <= 310


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("key hunter2!", "key [redacted]", id="the key itself"),
        pytest.param("sk-ant-api03-abc*** is wrong", "[redacted] is wrong", id="another key, half hidden"),
        pytest.param("Authorization: Bearer abc.def", "[redacted]", id="a header"),
        pytest.param('{"x-api-key": "abcdef"}', '{"[redacted]"}', id="a header in JSON"),
        pytest.param("http://me:pass@host/v1", "http://[redacted]@host/v1", id="a password in a URL"),
        pytest.param("sent Bearer abc.def", "sent [redacted]", id="a header's value"),
        pytest.param("two\n  lines", "two lines", id="one line"),
        pytest.param("a" * 400, "a" * 299 + "…", id="cut"),
        pytest.param("the task of the bearer", "the task of the bearer", id="plain words are kept"),
    ],
)
def test_secrets_are_redacted_from_an_error(text: str, expected: str) -> None:
    assert redacted_text(text, "hunter2!") == expected
