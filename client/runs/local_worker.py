"""What the worker beside a client would refuse, refused before a run begins."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from temporalio.client import Client

from orga.client.config.workplace import queue_and_memo

if TYPE_CHECKING:  # they bring what only a start beside a worker needs
    from orga.client.config.known_input import RequestedNames
    from orga.workflows.types.goals.input import GoalInput
    from orga.workflows.types.input import AgentInput
    from orga.workflows.types.sessions.input import SessionInput

_CHECKS: "WeakKeyDictionary[Client, Callable[[RequestedNames], None]]" = WeakKeyDictionary()


def register_check(client: Client, check: "Callable[[RequestedNames], None]") -> None:
    """Keep in mind what the worker beside a client would refuse."""
    _CHECKS[client] = check


def check_by_local_worker(
    client: Client, checked: "AgentInput | GoalInput | SessionInput", task_queue: str | None
) -> None:
    """Refuse what the worker beside a client would, where there is one and the run is to go to it.

    Raises:
        InvalidInput: As the worker would say it.
    """
    if client in _CHECKS and task_queue in (None, queue_and_memo(client)[0]):
        from orga.client.config.known_input import requested_names

        _CHECKS[client](requested_names(checked))
