"""What a protocol brings to a streamed model call."""

from collections.abc import Callable
from typing import Any, Protocol

from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.failures import Failures
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import Reply


class StreamReader(Protocol):
    """Reads the frames of one reply."""

    def feed(self, frame: dict[str, Any]) -> bool:
        """Take one frame; return whether nothing more is wanted.

        Raises:
            ModelError: When the frame is the provider's own report of a failure.
        """
        ...

    def reply(self) -> Reply:
        """Return the reply.

        Raises:
            ModelError: BadStream when its end was never marked.
        """
        ...


class Wire(Protocol):
    """One protocol: where to post, what to send, how to read."""

    @property
    def path(self) -> str:
        """Appended to the base URL."""
        ...

    @property
    def name_pattern(self) -> str:
        """A regular expression for what refusals call the protocol."""
        ...

    @property
    def may_be_missing(self) -> bool:
        """Whether a server of this provider may lack the protocol."""
        ...

    def dialect(self, model: str) -> Dialect:
        """Return what is known of `model` before the first refusal."""
        ...

    def body(self, request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
        """Return the JSON to send."""
        ...

    def reader(self, request: ModelRequest, on_text: Callable[[str], None], failures: Failures) -> StreamReader:
        """Return a reader for the answer to `request`."""
        ...
