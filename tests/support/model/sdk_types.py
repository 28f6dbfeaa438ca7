"""The official SDKs' own request types check the requests that we send."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import BaseModel, TypeAdapter

_CHAT = TypeAdapter[Any](CompletionCreateParamsStreaming)
_RESPONSES = TypeAdapter[Any](ResponseCreateParamsStreaming)
_MESSAGES = TypeAdapter[Any](MessageCreateParamsStreaming)


def assert_openai_takes(body: dict[str, Any], *extras: str) -> None:
    """Fail on an ill-typed value, and on a key that neither the type nor `extras` knows."""
    _assert_takes(_CHAT, body, extras)


def assert_responses_takes(body: dict[str, Any], *extras: str) -> None:
    """Fail on an ill-typed value, and on a key that neither the type nor `extras` knows."""
    _assert_takes(_RESPONSES, body, extras)


def assert_anthropic_takes(body: dict[str, Any], *extras: str) -> None:
    """Fail on an ill-typed value, and on a key that neither the type nor `extras` knows."""
    _assert_takes(_MESSAGES, body, extras)


def _assert_takes(takes: TypeAdapter[Any], body: dict[str, Any], extras: tuple[str, ...]) -> None:
    """Validation drops unknown keys, so what is left is compared with what was sent."""
    known = _without(body, extras)
    _assert_same(_plain(takes.validate_python(known)), known)


def _without(value: Any, names: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_without(item, names) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    return {name: _without(item, names) for name, item in fields.items() if name not in names}


def _assert_same(known: dict[str, Any], sent: dict[str, Any]) -> None:
    for key, value in sent.items():
        assert known.get(key) == value, f"{key} holds more than its type knows"


def _plain(value: Any) -> Any:
    """Return `value` with the SDK's models and lazy iterables read."""
    if isinstance(value, BaseModel):  # Anthropic's requests accept blocks of replies
        return value.model_dump(exclude_unset=True)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    return [_plain(item) for item in cast("Iterable[Any]", value)]
