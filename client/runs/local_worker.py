"""What the worker beside a client would refuse, refused before a run begins."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from temporalio.client import Client

from orga.client.config.workplace import settled

if TYPE_CHECKING:  # they bring what only a start beside a worker needs
    from orga.client.config.known_input import Wanted
    from orga.workflows.types.goals.input import GoalInput
    from orga.workflows.types.input import AgentInput
    from orga.workflows.types.sessions.input import SessionInput

_CHECKS: "WeakKeyDictionary[Client, Callable[[Wanted], None]]" = WeakKeyDictionary()


def check_by(client: Client, check: "Callable[[Wanted], None]") -> None:
    """Keep in mind what the worker beside a client would refuse."""
    _CHECKS[client] = check


def refuse_by_worker(client: Client, checked: "AgentInput | GoalInput | SessionInput", task_queue: str | None) -> None:
    """Refuse what the worker beside a client would, where there is one and the run is to go to it.

    Raises:
        InvalidInput: As the worker would say it.
    """
    if client in _CHECKS and task_queue in (None, settled(client)[0]):
        from orga.client.config.known_input import wanted_by

        _CHECKS[client](wanted_by(checked))
