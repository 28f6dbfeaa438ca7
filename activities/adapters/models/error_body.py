"""What a provider's error states: its message, its code, how long to wait, and what it refuses."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orga.activities.adapters.models.json_shape import as_object, as_objects, as_text
from orga.activities.adapters.models.overflow import is_overflow
from orga.activities.adapters.models.retry_after import stated_wait

MAX_MESSAGE_CHARS = 4_000
"""Of what an error says; a server may send megabytes, and each is searched for what it means."""

_UNPAID_CODES = frozenset({"insufficient_quota", "billing_error", "billing_not_active", "billing_hard_limit_reached"})

_UNPAID = re.compile(
    r"credit balance is too low|reached your specified API usage limits|key limit exceeded"
    r"|insufficient (?:credits|balance)",
    re.IGNORECASE,
)
"""Anthropic says it with 400, routers with 403."""

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
"""How content filters refuse a request. The sources are public issues and the providers' documentation."""

_STATUS_OF = {
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "data_inspection_failed": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "billing_not_active": 402,
    "billing_hard_limit_reached": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


@dataclass(frozen=True)
class ErrorBody:
    """The parts of an error that decisions need. `headers` are those it holds, of a provider behind a router."""

    message: str
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    wait_s: float | None = None
    """That the body states, in a field or in a sentence."""

    @property
    def is_overflow(self) -> bool:
        """Whether the conversation was too long for the model."""
        return is_overflow(self.message, self.code)

    @property
    def is_unpaid(self) -> bool:
        """Whether the account has nothing left, which OpenAI answers with 429: no wait of a run cures it."""
        return self.code in _UNPAID_CODES or _UNPAID.search(self.message) is not None

    @property
    def is_filtered(self) -> bool:
        """Whether a content filter refused something in the request."""
        return self.code.lower() in _FILTERED_CODES or _FILTERED.search(self.message) is not None

    @property
    def status(self) -> int:
        """The HTTP status that an error inside a stream stands for; 500 when it doesn't say."""
        if len(self.code) == 3 and self.code.isdecimal() and 400 <= int(self.code) <= 599:
            return int(self.code)
        return _STATUS_OF.get(self.code, 500)


def error_body(text: str) -> ErrorBody:
    """Read the body of an error answer, JSON or not."""
    try:
        parsed: Any = json.loads(text)
    except (ValueError, RecursionError):
        return ErrorBody(text[:MAX_MESSAGE_CHARS], wait_s=stated_wait(None, text[:MAX_MESSAGE_CHARS]))
    return error_value(next(iter(as_objects(parsed)), parsed))


def error_value(value: object) -> ErrorBody:
    """Read an error object, or an object that holds one under `error`."""
    outer = as_object(value)
    error = as_object(outer.get("error")) or outer
    metadata = as_object(error.get("metadata"))
    message = as_text(outer.get("error")) or _message(error) or (json.dumps(value) if value else "no reason given")
    if raw := as_text(metadata.get("raw")):
        message = f"{message}: {raw}"
    stated = as_object(error.get("headers")) | as_object(metadata.get("headers"))
    headers = {name.lower(): str(item) for name, item in stated.items()}
    message = message[:MAX_MESSAGE_CHARS]
    return ErrorBody(message, _code(error), headers, stated_wait(outer, message))


def _message(error: dict[str, Any]) -> str:
    return next((text for key in ("message", "detail") if (text := as_text(error.get(key)))), "")


def _code(error: dict[str, Any]) -> str:
    """Return the most telling of `code` and `type`: a code that isn't known says less than a type that is."""
    names = [str(error[key]) for key in ("code", "type") if error.get(key) not in (None, "")]
    return next((name for name in names if name in _STATUS_OF or name.isdecimal()), next(iter(names), ""))
