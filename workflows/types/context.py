"""A model call's input: what is new, and references to the rest. Its size does not grow with the run."""

from collections.abc import Callable
from typing import Any, Literal

from workflows.types.digest import digest_of, reference
from workflows.types.input import LoopConfig
from workflows.types.messages import Message
from workflows.types.record import Record
from workflows.types.tools import ToolSpec


class Setup(Record):
    """What a run works with, recorded once: the result of `prepare`."""

    agent: str
    model: str
    """`provider:model`."""
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    config: LoopConfig = LoopConfig()
    """The effective config: the input's keys over the agent's over the defaults."""
    policy: str = "default"
    search_attributes: bool = True
    """Whether the server knows the Orga* attributes; without them an upsert would fail every workflow task."""
    roll_over_events: int = 3_500
    """Events of a history after which the run continues as new; the server suggests it at 4,096."""
    roll_over_bytes: int = 3_000_000

    def tool(self, name: str) -> ToolSpec | None:
        """Return the tool that is offered under `name`."""
        return next((tool for tool in self.tools if tool.name == name), None)


Ranges = tuple[tuple[int, int], ...]
"""Messages by index: `[start, stop)`, in order."""


class News(Record):
    """One message that the model has not seen: by reference where history holds it, else in full. One field is set."""

    reply: int | None = None
    """The assistant message of that iteration's model call."""
    result: str | None = None
    """The result of the tool activity with that id."""
    message: Message | None = None


class ContextRef(Record):
    """A conversation by reference: `base` without `drop`, then `news`, must have the digest `head`."""

    base: str = ""
    length: int = 0
    """Messages in the base."""
    drop: Ranges = ()
    """Parts of the base that are left out from now on."""
    news: tuple[News, ...] = ()
    head: str = ""

    def applied(self, base: tuple[Message, ...], resolve: Callable[[News], Message]) -> tuple[Message, ...]:
        """Return the messages that this reference stands for.

        Raises:
            DigestMismatch: They are not the ones that the workflow meant; a wrong context is never sent.
        """
        if len(base) != self.length:
            raise DigestMismatch(f"the base has {len(base)} messages, not {self.length}")
        messages = (*without(base, self.drop), *(resolve(news) for news in self.news))
        if reference(digest_of(messages)) != self.head:
            raise DigestMismatch(f"the {len(messages)} messages found do not have the digest {self.head}")
        return messages


class DigestMismatch(ValueError):
    """What was found is not what the digest names."""


def without(messages: tuple[Message, ...], drop: Ranges) -> tuple[Message, ...]:
    """Return the messages that lie in none of the ranges."""
    if not drop:
        return messages
    return tuple(m for index, m in enumerate(messages) if not any(start <= index < stop for start, stop in drop))


class ReasonRequest(Record):
    """Input of `reason`."""

    iteration: int
    setup: str
    """Reference of the `Setup`."""
    context: ContextRef
    max_output_tokens: int | None = None
    """Set where fewer tokens are left than the config allows a reply."""


class PrepareRequest(Record):
    """Input of `prepare`: the checked parts of the run's input that choose its setup."""

    agent: str = "default"
    model: str | None = None
    instructions: str | None = None
    tools: tuple[str, ...] | None = None
    config: dict[str, Any] = {}
    """Only the keys that were given."""


InterventionKind = Literal["steer", "add_context", "pause", "resume", "abort"]
