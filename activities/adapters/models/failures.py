"""What went wrong with a model call, as a ModelError: its kind, whether it may be retried, and when."""

from collections.abc import Mapping
from datetime import UTC, datetime

from orga.activities.adapters import http
from orga.activities.adapters.models.error_body import ErrorBody, error_body, error_value
from orga.activities.adapters.models.redaction import redacted
from orga.activities.adapters.models.retry_after import retry_after_s
from orga.activities.ports import ModelError

_KINDS = {
    401: "AuthenticationFailed",
    402: "OutOfQuota",
    403: "PermissionDenied",
    404: "ModelNotFound",
    408: "Timeout",
    409: "ServerError",
    413: "RequestTooLarge",
    429: "RateLimited",
    503: "Overloaded",
    504: "Timeout",
    529: "Overloaded",
}


class Failures:
    """The failures of one provider; its key is kept out of every text."""

    def __init__(self, provider: str, secret: str = "") -> None:
        self._provider = provider
        self._secret = secret

    def answered(self, status: int, headers: Mapping[str, str], body: str) -> ModelError:
        """Return the failure that an HTTP answer other than 2xx stands for; `x-should-retry` has the last word."""
        error = error_body(body)
        kind, retryable = _judged(status, error)
        retryable = {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower(), retryable)
        stated = {name.lower(): value for name, value in headers.items()}
        wait = retry_after_s({**error.headers, **stated}, datetime.now(UTC), rate_limited=status == 429)
        return self._error(
            kind, f"answered {status}: {error.message}", retryable=retryable, wait=wait if retryable else None
        )

    def in_stream(self, value: object) -> ModelError:
        """Return the failure that an error inside an answer of status 200 stands for."""
        error = error_value(value)
        kind, retryable = _judged(error.status, error)
        wait = retry_after_s(error.headers, datetime.now(UTC), rate_limited=error.status == 429)
        return self._error(
            kind, f"broke off its reply: {error.message}", retryable=retryable, wait=wait if retryable else None
        )

    def bad_stream(self, reason: str) -> ModelError:
        """Return the failure of a reply that can't be read to its end."""
        return self._error("BadStream", f"sent a broken reply: {reason}", retryable=True)

    def too_large(self, reason: str) -> ModelError:
        """Return the failure of an answer past every bound."""
        return self._error("ReplyTooLarge", f"sent too large a reply: {reason}", retryable=False)

    def transport(self, error: http.HTTPError | http.InvalidURL, *, reading: bool) -> ModelError:
        """Return the failure that an exception of the HTTP library stands for.

        Args:
            error: What was raised.
            reading: Whether the answer had begun.
        """
        cause = f"{type(error).__name__} {error}".strip()
        if isinstance(error, http.TimeoutException):
            return self._error("Timeout", f"kept silent too long: {cause}", retryable=True)
        if isinstance(error, (http.InvalidURL, http.UnsupportedProtocol, http.LocalProtocolError)):
            return self._error("InvalidRequest", f"can't be asked: {cause}", retryable=False)
        if reading:
            return self.bad_stream(cause)
        return self._error("ConnectionFailed", f"can't be reached: {cause}", retryable=True)

    def _error(self, kind: str, text: str, *, retryable: bool, wait: float | None = None) -> ModelError:
        message = f"{self._provider} {redacted(text, self._secret)}"
        return ModelError(kind, message, retryable=retryable, retry_after_s=wait)


def _judged(status: int, error: ErrorBody) -> tuple[str, bool]:
    """Return kind and retryability of a status, a too long context and an empty account told apart."""
    if status in {400, 413, 422, 500} and error.is_overflow:
        return "ContextOverflow", False
    if status in {400, 403, 429} and error.is_unpaid:
        return "OutOfQuota", False
    kind = _KINDS.get(status, "ServerError" if status >= 500 else "InvalidRequest")
    return kind, status in {408, 409, 429} or status >= 500
