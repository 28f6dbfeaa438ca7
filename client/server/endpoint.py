"""A Temporal server to connect to, or the reason why there is none."""

from collections.abc import Callable
from dataclasses import dataclass

from orga.client.errors import OrgaError

Report = Callable[[str], None]


@dataclass(frozen=True)
class Endpoint:
    """The address of a server. `ui` is None if its web interface is unknown."""

    address: str
    ui: str | None = None
    namespace: str = "default"
    embedded: bool = False


class ServerUnavailable(OrgaError):
    """No server is available. The text is one line: the cause, then the remedy."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"{cause}; {remedy}")
        self.cause = cause
        self.remedy = remedy
