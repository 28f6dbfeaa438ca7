"""Turns a provider's failure into a `ModelError`: kind, whether and when to retry, and text without secrets."""

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, cast

from orga.activities.adapters import http
from orga.activities.adapters.models.overflow import is_overflow
from orga.activities.ports import ModelError
from orga.activities.text.secrets import REDACTED, KnownSecrets
from orga.workflows.types.json_text import as_object, as_objects, as_text
from orga.workflows.types.text import cut_line

MAX_ERROR_CHARS = 300
_SECRETS = re.compile(
    r"""(?ix)
    (?: (?:(?:proxy-)?authorization|x-api-key|api[-_]?key) ["']? \s*[:=]\s* ["']? (?:(?:bearer|basic)\s+)? [^\s"',}]+ )
    | (?: \b(?:bearer|basic) \s+ [\w\-.~+/=*]{4,} )
    | (?: \b(?:sk|pk|rk)-[\w\-*.]{4,} )
    | (?: (?<=://) [^/\s@]+ (?=@) )
    """
)


def redacted_text(text: str, secret: str = "") -> str:
    """Return `text` without `secret` and anything that looks like a credential, in at most 300 characters."""
    text = KnownSecrets.from_values([secret], least=1).redact(text)
    line = " ".join(_SECRETS.sub(REDACTED, text).split())
    return cut_line(line, MAX_ERROR_CHARS)


MAX_WAIT_S = 7 * 86_400.0
"""Seconds. A delay of more than a week is ignored as nonsense."""

_UNITS = (
    ("ms", 0.001, r"ms|msecs?|milliseconds?|毫秒"),
    ("s", 1.0, r"s|secs?|seconds?|秒钟?"),
    ("m", 60.0, r"m|mins?|minutes?|分钟?"),
    ("h", 3_600.0, r"h|hrs?|hours?|小时"),
    ("d", 86_400.0, r"d|days?|天"),
)
"""Name, seconds and spellings of each unit of time."""
_UNIT = "|".join(f"(?P<{name}>{spellings})" for name, _, spellings in _UNITS)
_PIECE = re.compile(rf"(\d+(?:\.\d+)?)\s*(?:{_UNIT})(?![a-z])(?:,?\s*(?:and\s+)?)", re.IGNORECASE)
_PIECES = rf"(?:\d+(?:\.\d+)?\s*(?:{re.sub(r'[?]P<[a-z]+>', '?:', _UNIT)})(?![a-z]),?\s*(?:and\s+)?)+"
_MAX_DURATION_CHARS = 64
"""A longer text is no duration, and would make the pattern slow."""

WAIT_SENTENCES = (
    ("OpenAI, Groq", r"try again in"),  # 8.2s, 6m0s, 8h18m31.68s, 20 seconds
    ("Azure", r"(?:retry|try again) after"),  # 26 seconds
    ("Gemini", r"retry in"),  # 21.124101106s
    ("Cerebras, Together", r"wait (?:for |at least |about |another )*"),
    ("Copilot, Codex", r"(?:resets?|available|renews?) (?:again )?(?:in|after)"),
    ("OpenRouter", r"retry[-_ ]after(?:[-_ ]seconds)?[\"']?\s*[:=]\s*"),
    ("Zhipu, DashScope", r"请(?:在|等待|于)?"),  # 请在 30 秒后重试
)
"""Provider, and a regular expression for the text before the duration. Letter case is ignored."""

WAIT_KEYS = {
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
"""Keys of an error's JSON, in lower case, with their unit in seconds. The value is a number or a duration as text."""

_SENTENCE = re.compile(
    rf"(?:{'|'.join(before for _, before in WAIT_SENTENCES)})[\s\"'~:]*(?:about |approximately )?({_PIECES})",
    re.IGNORECASE,
)
_MAX_PARTS = 500
"""Parts of an error's JSON that are searched."""


def retry_after_s(
    headers: Mapping[str, str], now: datetime, *, rate_limited: bool, in_body: float | None = None
) -> float | None:
    """Return the delay that the provider asks for, or None if it states none that makes sense.

    An explicit delay in the headers comes first, then one in the body, then the reset times of limits. Reset times
    count only if a limit was reached, because providers send them with every answer.

    Args:
        headers: Headers with names in lower case, or a case-insensitive mapping.
        in_body: The delay that `stated_wait` found in the body.
    """
    milliseconds = [_number(headers.get(name)) for name in ("retry-after-ms", "x-ms-retry-after-ms")]
    text = headers.get("retry-after")
    direct = _first_wait(
        *(None if number is None else number * 0.001 for number in milliseconds),
        *(_number(text), _duration(text), _seconds_until(parsedate_to_datetime, text, now), in_body),
    )
    return _reset_s(headers, now) if direct is None and rate_limited else direct


def stated_wait(error: object, message: str) -> float | None:
    """Return the delay that an error's JSON states, or else the one in its message."""
    sentence = _SENTENCE.search(message)
    return _first_wait(*_waits_in(error), _duration(sentence[1]) if sentence else None)


def _reset_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the longest reset of the exhausted limits, or of all limits if none is marked as exhausted.

    `x-ratelimit-reset-tokens` (OpenAI, Groq, Azure, Cerebras), `anthropic-ratelimit-tokens-reset`, `x-ratelimit-reset`
    (OpenRouter) and `ratelimit-reset` each have a second header, with `remaining` in its name, for what is left of the
    limit. `ratelimit` (IETF) contains both.
    """
    resets: list[tuple[float, bool]] = []
    for name in headers:
        if name.endswith("ratelimit"):
            resets += _ietf_limits(headers[name])
        elif "ratelimit" in name and "reset" in name:
            text = headers[name]
            until = _seconds_until(datetime.fromisoformat, text, now)
            wait = _first_wait(_duration(text), _seconds_from_number(text, now), until)
            if wait is not None:
                resets.append((wait, _number(headers.get(name.replace("reset", "remaining"))) == 0))
    spent = [wait for wait, is_spent in resets if is_spent]
    return max(spent or [wait for wait, _ in resets], default=None)


def _ietf_limits(text: str) -> Iterator[tuple[float, bool]]:
    """Yield each limit's delay and exhaustion. Forms: `"name";r=0;t=30, …`, and `limit=9, remaining=0, reset=30`."""
    policies = text.split(",") if ";" in text else [text]
    for policy in policies:
        fields = dict(re.findall(r"\b(\w+)\s*=\s*(\d+)", policy))
        wait = _first_wait(_number(fields.get("t", fields.get("reset"))))
        if wait is not None:
            yield wait, fields.get("r", fields.get("remaining")) == "0"


def _waits_in(error: object) -> Iterator[float | None]:
    """Yield the delays under the known keys, the outermost first."""
    waiting: list[object] = [error]
    for part in waiting:
        if isinstance(part, dict):
            for key, value in cast("dict[str, Any]", part).items():
                if unit := WAIT_KEYS.get(key.lower()):
                    number = _number(value)
                    yield None if number is None else number * unit
                    yield _duration(value if isinstance(value, str) else None)
                waiting.append(value)
        elif isinstance(part, list):
            waiting += cast("list[object]", part)
        del waiting[_MAX_PARTS:]


def _first_wait(*seconds: float | None) -> float | None:
    """Return the first delay that is between 0 and `MAX_WAIT_S`."""
    return next((each for each in seconds if each is not None and 0 <= each <= MAX_WAIT_S), None)


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


def _seconds_until(read: Callable[[str], datetime], text: str | None, now: datetime) -> float | None:
    if not text:
        return None
    try:
        moment = read(text)
    except (ValueError, OverflowError):
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.timestamp() - now.timestamp()


def _seconds_from_number(text: str | None, now: datetime) -> float | None:
    """Read milliseconds since the epoch (OpenRouter), seconds since it, or seconds from now. The size shows which."""
    value = _number(text)
    if value is None or value < 1e9:  # 1e9 s: 32 years from now, or the year 2001 since the epoch
        return value
    seconds = value / 1000 if value >= 1e11 else value  # 1e11 s since the epoch are after the year 5000
    return seconds - now.timestamp()


MAX_MESSAGE_CHARS = 4_000
"""Characters of an error's text. A server may send megabytes, and every text is searched for its meaning."""

_UNPAID_CODES = frozenset({"insufficient_quota", "billing_error", "billing_not_active", "billing_hard_limit_reached"})

_UNPAID = re.compile(
    r"credit balance is too low|reached your specified API usage limits|key limit exceeded"
    r"|insufficient (?:credits|balance)",
    re.IGNORECASE,
)
"""An empty account. Anthropic sends this with status 400, routers with 403."""

_FILTERED_CODES = frozenset(
    {
        "content_filter",  # Azure, Kimi
        "content_policy_violation",  # OpenAI
        "responsibleaipolicyviolation",  # Azure
        "data_inspection_failed",  # Qwen, DashScope
        "datainspectionfailed",
        "moderation_blocked",
        "prohibited_content",  # Gemini
        "1301",  # Zhipu
    }
)

_FILTERED = re.compile(
    r"content (?:management|filter\w*|moderation|safety) polic|triggering .{0,40}content"  # Azure
    r"|ContentPolicyViolation|ResponsibleAIPolicy"  # LiteLLM
    r"|(?:blocked|filtered|refused|rejected) (?:by|due to|because of) .{0,40}(?:content|safety|moderation)"  # Anthropic
    r"|flagged (?:as potentially violating|by|for)|requires moderation|input was flagged|prompt was flagged"
    r"|violat\w+ (?:of )?(?:our |the |\w+'s )?(?:usage|content|safety|acceptable use)"  # OpenAI, xAI
    r"|content exists risk"  # DeepSeek
    r"|data ?inspection ?failed|inappropriate content"  # Qwen
    r"|considered high risk"  # Kimi
    r"|(?:input|output) new_sensitive|sensitive (?:content|words?)"  # MiniMax
    r"|PROHIBITED_CONTENT|不安全或敏感|敏感(?:内容|词|信息)",  # Gemini, Zhipu
    re.IGNORECASE,
)
"""Refusals by content filters. The sources are public issues and the providers' documentation."""

_UNKNOWN_MODEL_CODES = frozenset(
    {
        "model_not_found",  # OpenAI, Groq, Together
        "model_decommissioned",  # Groq
        "model_deprecated",
        "deploymentnotfound",  # Azure
        "modelnotfound",
        "1211",  # Zhipu
    }
)

_UNKNOWN_MODEL = re.compile(
    r"models?:?\s+[\"'`]?[^\s\"'`]{0,200}[\"'`]?,?\s*"  # the model and its name, as most providers write
    r"(?:(?:does not|doesn't|not) exist|(?:is |was )?not found\b(?!:)"
    r"|(?:is|was|has been) (?:\w+ )?(?:decommissioned|deprecated|retired|discontinued|shut ?down|sunset|removed))"
    r"|(?:no such|unknown|invalid|not a valid) model\b(?! (?:parameter|setting|config))"
    r"|invalid model name passed"  # LiteLLM
    r"|model identifier is invalid|reached the end of its life"  # Bedrock
    r"|no endpoints found for (?!.*(?:support|match))|is not a valid model"  # OpenRouter
    r"|模型不存在",  # Zhipu
    re.IGNORECASE | re.DOTALL,
)
"""Refusals because the provider does not have the model, or no longer. The sources are the providers' documentation."""

_CODES_OF_STATUS = {
    400: "invalid_request_error invalid_prompt context_length_exceeded "
    "content_filter content_policy_violation data_inspection_failed",
    401: "authentication_error invalid_api_key",
    402: " ".join(_UNPAID_CODES),
    403: "permission_error",
    404: "not_found_error container_expired model_not_found",
    413: "request_too_large",
    429: "rate_limit_error rate_limit_exceeded",
    500: "api_error server_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STATUS_OF_CODE = {code: status for status, codes in _CODES_OF_STATUS.items() for code in codes.split()}


@dataclass(frozen=True)
class ErrorBody:
    """The parts of an error that decisions need. `headers` are those that a router copies from its provider."""

    message: str
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    wait_s: float | None = None
    """The delay that the body states, in a field or in a sentence."""

    @property
    def text(self) -> str:
        """The code and the message. Either may hold the reason."""
        return f"{self.code} {self.message}"

    @property
    def is_overflow(self) -> bool:
        return is_overflow(self.message, self.code)

    @property
    def is_unpaid(self) -> bool:
        """True if the account is empty. OpenAI then answers 429, although waiting does not help."""
        return self.code in _UNPAID_CODES or _UNPAID.search(self.message) is not None

    @property
    def is_filtered(self) -> bool:
        return self.code.lower() in _FILTERED_CODES or _FILTERED.search(self.message) is not None

    @property
    def is_unknown_model(self) -> bool:
        return self.code.lower() in _UNKNOWN_MODEL_CODES or _UNKNOWN_MODEL.search(self.message) is not None

    @property
    def status(self) -> int:
        """The HTTP status that matches an error inside a stream, or 500 if the error does not show it."""
        if len(self.code) == 3 and self.code.isdecimal() and 400 <= int(self.code) <= 599:
            return int(self.code)
        if "Unexpected endpoint or method" in self.message:  # LM Studio, with status 200
            return 404
        return _STATUS_OF_CODE.get(self.code, 500)


def parse_error_body(text: str) -> ErrorBody:
    try:
        parsed: Any = json.loads(text)
    except (ValueError, RecursionError):
        message = _plain_message(text[:MAX_MESSAGE_CHARS])
        return ErrorBody(message, wait_s=stated_wait(None, message))
    return parse_error_value(next(iter(as_objects(parsed)), parsed))


_WEB_PAGE = re.compile(r"\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")


def _plain_message(text: str) -> str:
    """Return the text. If it is a web page, which proxies and unknown paths answer with, remove its tags."""
    if not _WEB_PAGE.match(text):
        return text
    return f"a web page: {' '.join(html.unescape(_TAG.sub(' ', text)).split())}"


def parse_error_value(value: object) -> ErrorBody:
    """Read an error object, or an object with one under `error`."""
    outer = as_object(value)
    error = as_object(outer.get("error")) or outer
    metadata = as_object(error.get("metadata"))
    texts = map(as_text, (outer.get("error"), error.get("message"), error.get("detail")))
    fallback = json.dumps(value) if value else "no reason given"
    message = next((text for text in texts if text), fallback)
    if raw := as_text(metadata.get("raw")):
        message = f"{message}: {raw}"
    message = message[:MAX_MESSAGE_CHARS]
    copied = as_object(error.get("headers")) | as_object(metadata.get("headers"))
    headers = {name.lower(): str(item) for name, item in copied.items()}
    names = [str(error[key]) for key in ("code", "type") if error.get(key) not in (None, "")]
    known = (name for name in names if name in _STATUS_OF_CODE or name.isdecimal())
    code = next(known, next(iter(names), ""))  # a known type is better than an unknown code
    return ErrorBody(message, code, headers, stated_wait(outer, message))


_KIND_OF_STATUS = {
    401: "AuthenticationFailed",
    402: "OutOfQuota",
    403: "PermissionDenied",
    404: "ModelNotFound",
    408: "Timeout",
    409: "ServerError",
    410: "ModelNotFound",
    413: "RequestTooLarge",
    429: "RateLimited",
    503: "Overloaded",
    504: "Timeout",
    529: "Overloaded",
}


class Refusal(ModelError):
    """The provider's answer is an error. `error` has the whole text, which may contain secrets: never show it."""

    def __init__(self, kind: str, message: str, error: ErrorBody, *, retryable: bool, wait: float | None) -> None:
        super().__init__(kind, message, retryable=retryable, retry_after_s=wait if retryable else None)
        self.error = error
        self.status = error.status
        self.in_stream = False
        """True if the error came inside an answer with status 200."""


class ProviderFailures:
    """Builds the failures of one provider. No text contains its key, or a part of its address that may hold one."""

    def __init__(self, provider: str, secret: str = "", base_url: str = "") -> None:
        self._provider = provider
        self._secret = secret
        try:
            url = http.URL(base_url).copy_with(username=None, password=None, query=None, fragment=None)
        except http.InvalidURL:  # the first request reports it
            url = http.URL("")
        self._at_address = f" at {url}" if url.host else ""
        self._has_version = bool(re.search(r"/v\d", url.path))

    def from_response(self, status: int, headers: Mapping[str, str], body: str) -> Refusal:
        """Return the failure for an HTTP status other than 2xx. The header `x-should-retry` overrides our own rule."""
        refusal = self._refusal(f"answered {status}", status, headers, parse_error_body(body))
        refusal.status = status
        return refusal

    def from_stream_error(self, value: object) -> Refusal:
        """Return the failure for an error inside an answer with status 200."""
        error = parse_error_value(value)
        refusal = self._refusal("broke off its reply", error.status, {}, error)
        refusal.in_stream = True
        return refusal

    def _refusal(self, event: str, status: int, headers: Mapping[str, str], error: ErrorBody) -> Refusal:
        if status == HTTPStatus.NOT_FOUND:
            event += self._at_address
            if self._at_address and not self._has_version:
                event += " (most servers need an address that ends in /v1)"
        kind, retryable = _kind_and_retry(status, error)
        retryable = {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower(), retryable)
        known_headers = {**error.headers, **{name.lower(): value for name, value in headers.items()}}
        wait = retry_after_s(known_headers, datetime.now(UTC), rate_limited=status == 429, in_body=error.wait_s)
        return Refusal(kind, self._text(f"{event}: {error.message}"), error, retryable=retryable, wait=wait)

    def bad_stream(self, reason: str) -> ModelError:
        return self._error("BadStream", f"sent a broken reply: {reason}", retryable=True)

    def unusable(self, reason: str, kind: str = "InvalidRequest") -> ModelError:
        """Return the final failure for a provider that cannot be asked with these credentials or settings."""
        return self._error(kind, f"can't be asked: {reason}", retryable=False)

    def too_large(self, reason: str) -> ModelError:
        return self._error("ReplyTooLarge", f"sent too large a reply: {reason}", retryable=False)

    def from_transport(self, error: http.HTTPError | http.InvalidURL, *, reading: bool) -> ModelError:
        """Return the failure for an exception of the HTTP library. `reading` means that the answer had begun."""
        cause = f"{type(error).__name__} {error}".strip()
        if isinstance(error, http.TimeoutException):
            return self._error("Timeout", f"kept silent too long: {cause}", retryable=True)
        if isinstance(error, (http.InvalidURL, http.UnsupportedProtocol, http.LocalProtocolError)):
            return self.unusable(cause)
        if reading:
            return self.bad_stream(cause)
        return self._error("ConnectionFailed", f"can't be reached{self._at_address}: {cause}", retryable=True)

    def _error(self, kind: str, text: str, *, retryable: bool) -> ModelError:
        return ModelError(kind, self._text(text), retryable=retryable)

    def _text(self, text: str) -> str:
        return f"{self._provider} {redacted_text(text, self._secret)}"


def _kind_and_retry(status: int, error: ErrorBody) -> tuple[str, bool]:
    """Return a failure's kind and whether to retry it. The meaning of the body counts more than the status."""
    if status in {400, 413, 422, 429, 500} and error.is_overflow:
        return "ContextOverflow", False
    if status in {400, 403, 429} and error.is_unpaid:
        return "OutOfQuota", False
    if status in {400, 403, 422, 451, 500} and error.is_filtered:
        return "ContentRefused", False
    if status in {400, 403, 410, 422} and error.is_unknown_model:
        return "ModelNotFound", False
    kind = _KIND_OF_STATUS.get(status, "ServerError" if status >= 500 else "InvalidRequest")
    return kind, status in {408, 409, 429} or status >= 500
