"""Messages of an earlier conversation that a run starts with.

Nobody knows where their texts come from, so each message is untrusted unless the starter vouches for it.
"""

from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator
from pydantic_core import to_json

from orga.workflows.types.json_text import MAX_DEPTH, is_deeper
from orga.workflows.types.messages import Message, Role
from orga.workflows.types.parts import ToolCall
from orga.workflows.types.record import CheckedInput, replace_fields

GIVEN_MESSAGES = "given messages"
"""The taint of a run if its starter does not vouch for all given messages."""

MAX_GIVEN_MESSAGES = 1_000
MAX_GIVEN_BYTES = 100_000
"""Bytes of JSON for all given messages. The input of the first model call holds them, the task and its lookups."""

MAX_GIVEN_NAME_CHARS = 200


class GivenMessage(CheckedInput):
    """One message, as `conversation` returns it: a text, a reply with its calls, or the result of one call."""

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    """Calls of an assistant message. Each is answered by a later `tool` message."""
    call_id: str | None = None
    """The call that a `tool` message answers."""
    tool: str | None = None
    """The tool that was called, in a `tool` message. None takes it from the call."""
    is_error: bool = False
    """True if the call of a `tool` message failed."""
    trusted: bool = False
    """True if the starter vouches for it. The run then obeys it like its own task, and it leaves no taint."""

    def with_tool(self, tool: str) -> Self:
        return replace_fields(self, {"tool": tool})

    def message(self) -> Message:
        """Return the message that the model gets."""
        if self.role == "tool":
            return Message.of_result(self.text, self.call_id, self.tool, is_error=self.is_error)
        calls = (ToolCall(call_id=call.call_id, name=call.name, arguments=call.arguments) for call in self.calls)
        return Message.of(self.role, self.text, calls, untrusted=self.role == "user" and not self.trusted)


def _from_shown_messages(given: Any) -> Any:
    """Also accept the messages of another run, as `conversation` returns them."""
    if not isinstance(given, (list, tuple)):
        return given
    messages = cast("list[Any]", given)
    return [message.model_dump() if isinstance(message, BaseModel) else message for message in messages]


def _checked_messages(messages: tuple[GivenMessage, ...]) -> tuple[GivenMessage, ...]:
    """Return the messages, each result with its tool. Raise ValueError at the first message that does not fit."""
    if len(messages) > MAX_GIVEN_MESSAGES:
        raise ValueError(f"must not be more than {MAX_GIVEN_MESSAGES}, there are {len(messages)}; sum up the oldest")
    if any(is_deeper(call.arguments, MAX_DEPTH) for message in messages for call in message.calls):
        raise ValueError(f"arguments must not be nested more than {MAX_DEPTH} deep")
    size = len(to_json([message.model_dump(exclude_unset=True) for message in messages], inf_nan_mode="null"))
    if size > MAX_GIVEN_BYTES:
        raise ValueError(
            f"must not be larger than {MAX_GIVEN_BYTES} bytes of JSON, they have {size}; "
            "sum up the oldest, or put them into a file that the agent reads"
        )
    order = _CallOrder()
    checked = [order.next(f"message {index}", message) for index, message in enumerate(messages)]
    order.refuse_unanswered("after the last message")
    return tuple(checked)


class _CallOrder:
    """Tracks which calls wait for their results."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._open: dict[str, str] = {}
        """Tool names by the ids of unanswered calls."""

    def next(self, key: str, message: GivenMessage) -> GivenMessage:
        """Return the message if it may follow the previous ones."""
        if problem := _message_problem(message):
            raise ValueError(f"{key}: {problem}")
        if message.role == "tool":
            name = self._open.pop(message.call_id or "", None)
            if name is None:
                raise ValueError(f"{key}: call_id {message.call_id!r} belongs to no unanswered call right before it")
            return message if message.tool else message.with_tool(name)
        self.refuse_unanswered(key)
        for call in message.calls:
            if call.call_id in self._known:
                raise ValueError(f"{key}: two calls have the id {call.call_id!r}; give each its own")
            self._known.add(call.call_id)
            self._open[call.call_id] = call.name
        return message

    def refuse_unanswered(self, key: str) -> None:
        """Raise if a call before this message has no result."""
        if self._open:
            raise ValueError(
                f"{key}: call {next(iter(self._open))!r} has no result; add a message with role tool and its call_id"
            )


def _message_problem(message: GivenMessage) -> str:
    """Return the first problem of a message by itself, or ""."""
    role = message.role
    if role == "system" and not message.trusted:
        return "a system message gives instructions; set trusted to true, or use `instructions`"
    if message.calls and role != "assistant":
        return f"a message with role {role} has no calls"
    problem = "" if role == "tool" else _problem_of_no_result(message)
    return problem or _names_problem(message)


def _problem_of_no_result(message: GivenMessage) -> str:
    if message.call_id is not None or message.tool is not None or message.is_error:
        return f"a message with role {message.role} answers no call; leave out call_id, tool and is_error"
    has_content = bool(message.text.strip() or message.calls)
    return "" if has_content else "text must not be empty"


def _names_problem(message: GivenMessage) -> str:
    names = [name for call in message.calls for name in (call.call_id, call.name)]
    if message.role == "tool":
        names += [message.call_id or "", message.tool or "tool"]  # a result without a tool gets its name from the call
    if not all(0 < len(name) <= MAX_GIVEN_NAME_CHARS for name in names):
        return f"call_id and the name of a tool must have 1 to {MAX_GIVEN_NAME_CHARS} characters"
    if any(call.malformed is not None for call in message.calls):
        return "the arguments of a call must be an object"
    return ""


GivenMessages = Annotated[
    tuple[GivenMessage, ...], BeforeValidator(_from_shown_messages), AfterValidator(_checked_messages)
]
