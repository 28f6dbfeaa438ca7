"""The inputs of a session and its messages, checked once when they arrive."""

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field, model_validator

from orga.workflows.types.control import Sender
from orga.workflows.types.input import (
    NOT_BLANK,
    PUT_INTO_FILE,
    AgentInput,
    Attachment,
    Instructions,
    LoopConfig,
    Name,
    OutputSchema,
    TrustedContext,
    max_json_bytes,
)
from orga.workflows.types.record import CheckedInput, check_input, not_an_object

WhenBusy = Literal["enqueue", "steer", "interrupt", "refuse"]
"""The handling of a message that arrives during a turn. In order: it waits for a turn of its own, it guides the current
turn, it interrupts the current turn and begins the next, or it is refused.
"""

MAX_MESSAGE_BYTES = 50_000
"""Bytes of JSON of one message. Longer ones belong in a file that the agent reads."""

MAX_MESSAGE_ATTACHMENTS = 10

MAX_MESSAGE_ID_CHARS = 100

NO_MESSAGE_YET = "(a session without messages so far)"
"""The task until the first message arrives. No model sees it."""

_MESSAGE_ID = re.compile(r"[!#-\[\]-~]+")
"""Characters that take one byte each in JSON. A session carries the ids of its last messages."""


def _checked_message_id(message_id: str) -> str:
    if not _MESSAGE_ID.fullmatch(message_id):
        raise ValueError("give letters, digits and signs of ASCII; no space, no quotation mark, no backslash")
    return message_id


class SessionInput(CheckedInput):
    """Input of `SessionWorkflow`: that of an agent's run without a task. Null takes the agent's own setting."""

    agent: Name = "default"
    model: Name | None = None
    """`provider:model` or `tier:NAME`."""
    instructions: Instructions = None
    tools: tuple[Name, ...] | None = None
    """A subset of the tools of the agent and its delegates."""
    config: LoopConfig = LoopConfig()
    """Limits and settings. The limits apply to each turn separately."""
    trusted_context: TrustedContext = {}
    """Facts from whoever starts the session. No model and no tool can write them."""
    output_schema: OutputSchema = None
    """JSON Schema (2020-12) for the answer of each turn. The result holds the answer as `data`."""
    tenant: Name | None = None
    idle_timeout_s: float | None = Field(default=None, ge=0.001, le=31_536_000)
    """Seconds without a message between two turns after which the session ends. Null: never."""

    def for_agent(self) -> AgentInput:
        """Return the input for the agent's loop. Raise InvalidInput if all parts together are too large."""
        given: dict[str, Any] = {
            name: getattr(self, name) for name in self.model_fields_set if name in AgentInput.model_fields
        }
        return check_input(AgentInput, {"task": NO_MESSAGE_YET, **given})


class SessionMessage(CheckedInput):
    """Argument of the update `send`."""

    text: Annotated[str, NOT_BLANK, max_json_bytes(MAX_MESSAGE_BYTES, PUT_INTO_FILE)]
    message_id: Annotated[
        str, Field(min_length=1, max_length=MAX_MESSAGE_ID_CHARS), AfterValidator(_checked_message_id)
    ]
    """A known id with the same text is answered with the turn of the first message, and changes nothing. A known id
    with another text is refused.
    """
    when_busy: WhenBusy = "enqueue"
    by: Sender = ""
    attachments: tuple[Attachment, ...] = Field(default=(), max_length=MAX_MESSAGE_ATTACHMENTS)
    """Pictures and documents that belong to the message, by reference. A message that steers has none."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            text: str,
            message_id: str,
            when_busy: WhenBusy = "enqueue",
            by: str = "",
            attachments: tuple[Attachment, ...] = (),
        ) -> None: ...

    @model_validator(mode="after")
    def _steers_without_attachments(self) -> "SessionMessage":
        if self.attachments and self.when_busy == "steer":
            raise ValueError("attachments: a message that steers has none; enqueue it")
        return self


class AwaitTurnArgument(CheckedInput):
    """Argument of the update `await_turn`."""

    turn: int = Field(ge=1)


class InterruptArgument(CheckedInput):
    """Argument of the update `interrupt`. A text in place of the object is its `why`."""

    why: str = ""
    turn: int | None = Field(default=None, ge=1)
    """The turn to interrupt. Null is the current one."""
    by: Sender = ""


def parse_session(raw: object) -> SessionInput:
    """Return the checked input, by default for the default agent. Raise InvalidInput with every problem."""
    if raw is None:
        return SessionInput()
    if not isinstance(raw, (dict, SessionInput)):
        raise not_an_object(raw, '{"agent": "default"}')
    given = check_input(SessionInput, cast("object", raw))
    given.for_agent()
    return given
