"""A Temporal server to talk to, or the reason why there is none."""

from collections.abc import Callable
from dataclasses import dataclass

from orga.client.errors import OrgaError

Report = Callable[[str], None]
"""Takes one line of progress for people."""


@dataclass(frozen=True)
class Endpoint:
    """Where a server answers. `ui` is None when we do not know its web interface."""

    address: str
    ui: str | None = None
    namespace: str = "default"
    embedded: bool = False


class ServerUnavailable(OrgaError):
    """No server can be had. The text is one line: the cause, then what to do."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"{cause}; {remedy}")
        self.cause = cause
        self.remedy = remedy
