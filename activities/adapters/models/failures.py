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


class Refusal(ModelError):
    """An error that the provider answered with. `error` holds its whole text, which may hold secrets: never show it."""

    def __init__(self, kind: str, message: str, error: ErrorBody, *, retryable: bool, wait: float | None) -> None:
        super().__init__(kind, message, retryable=retryable, retry_after_s=wait if retryable else None)
        self.error = error
        self.status = error.status
        self.in_stream = False
        """Whether it came inside an answer of status 200."""


class Failures:
    """The failures of one provider; its key is kept out of every text."""

    def __init__(self, provider: str, secret: str = "") -> None:
        self._provider = provider
        self._secret = secret

    def answered(self, status: int, headers: Mapping[str, str], body: str) -> Refusal:
        """Return the failure that an HTTP answer other than 2xx stands for; `x-should-retry` has the last word."""
        refusal = self._refusal(f"answered {status}", status, headers, error_body(body))
        refusal.status = status
        return refusal

    def in_stream(self, value: object) -> Refusal:
        """Return the failure that an error inside an answer of status 200 stands for."""
        error = error_value(value)
        refusal = self._refusal("broke off its reply", error.status, {}, error)
        refusal.in_stream = True
        return refusal

    def _refusal(self, how: str, status: int, headers: Mapping[str, str], error: ErrorBody) -> Refusal:
        kind, retryable = _judged(status, error)
        retryable = {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower(), retryable)
        stated = {**error.headers, **{name.lower(): value for name, value in headers.items()}}
        wait = retry_after_s(stated, datetime.now(UTC), rate_limited=status == 429, in_body=error.wait_s)
        return Refusal(kind, self._text(f"{how}: {error.message}"), error, retryable=retryable, wait=wait)

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

    def _error(self, kind: str, text: str, *, retryable: bool) -> ModelError:
        return ModelError(kind, self._text(text), retryable=retryable)

    def _text(self, text: str) -> str:
        return f"{self._provider} {redacted(text, self._secret)}"


def _judged(status: int, error: ErrorBody) -> tuple[str, bool]:
    """Return kind and retryability of a status, a too long context and an empty account told apart."""
    if status in {400, 413, 422, 429, 500} and error.is_overflow:
        return "ContextOverflow", False
    if status in {400, 403, 429} and error.is_unpaid:
        return "OutOfQuota", False
    if status in {400, 403, 422, 451, 500} and error.is_filtered:
        return "ContentRefused", False
    kind = _KINDS.get(status, "ServerError" if status >= 500 else "InvalidRequest")
    return kind, status in {408, 409, 429} or status >= 500
