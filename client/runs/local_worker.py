"""Checks of the worker in this process, so that what it would refuse is refused before a run starts."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from temporalio.client import Client

from orga.client.config.workplace import queue_and_memo

if TYPE_CHECKING:  # only needed to start a run next to a worker
    from orga.client.config.known_input import RequestedNames
    from orga.workflows.types.goals.input import GoalInput
    from orga.workflows.types.input import AgentInput
    from orga.workflows.types.sessions.input import SessionInput

_CHECKS: "WeakKeyDictionary[Client, Callable[[RequestedNames], None]]" = WeakKeyDictionary()


def register_check(client: Client, check: "Callable[[RequestedNames], None]") -> None:
    """Register the check of the worker that runs next to this client."""
    _CHECKS[client] = check


def check_by_local_worker(
    client: Client, checked: "AgentInput | GoalInput | SessionInput", task_queue: str | None
) -> None:
    """Refuse what the worker next to this client would refuse, if there is one and the run goes to its queue.

    Raises:
        InvalidInput: With the worker's own message.
    """
    if client in _CHECKS and task_queue in (None, queue_and_memo(client)[0]):
        from orga.client.config.known_input import requested_names

        _CHECKS[client](requested_names(checked))
