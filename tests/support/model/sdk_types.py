"""The official SDKs' own request types check the requests that we send."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

_CHAT = TypeAdapter[Any](CompletionCreateParamsStreaming)
_RESPONSES = TypeAdapter[Any](ResponseCreateParamsStreaming)
_MESSAGES = TypeAdapter[Any](MessageCreateParamsStreaming)


def assert_openai_takes(body: dict[str, Any]) -> None:
    """Fail on an ill-typed value, and on a key that the type does not know, because validation drops it."""
    _assert_same(_plain(_CHAT.validate_python(body)), body)


def assert_responses_takes(body: dict[str, Any]) -> None:
    """Fail on an ill-typed value, and on a key that the type does not know, because validation drops it."""
    _assert_same(_plain(_RESPONSES.validate_python(body)), body)


def assert_anthropic_takes(body: dict[str, Any]) -> None:
    """Fail on an ill-typed value, and on a key that the type does not know, because validation drops it."""
    _assert_same(_plain(_MESSAGES.validate_python(body)), body)


def _assert_same(known: dict[str, Any], sent: dict[str, Any]) -> None:
    for key, value in sent.items():
        assert known.get(key) == value, f"{key} holds more than its type knows"


def _plain(value: Any) -> Any:
    """Return `value` with the SDK's lazy iterables read."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    return [_plain(item) for item in cast("Iterable[Any]", value)]
