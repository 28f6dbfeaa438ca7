"""What clients may ask of a live agent beside what any run takes: its budget, its dead letters, its words."""

from __future__ import annotations

from typing import Any

from temporalio import workflow

from orga.workflows.decisions import recovery
from orga.workflows.decisions.delegation import with_delegate_held
from orga.workflows.decisions.limits import extended, extension
from orga.workflows.decisions.result import parsed_page, shown_conversation, status
from orga.workflows.phases.control.handlers import ControlHandlers, first_of
from orga.workflows.phases.control.pace import show_details
from orga.workflows.phases.control.run import wall_time
from orga.workflows.phases.run import Run
from orga.workflows.types.status import AgentStatus, ShownMessage


class Handlers(ControlHandlers[Run]):
    """The agent's."""

    @workflow.signal
    def delegate_held(self, *held: Any) -> None:
        """Stop or go on with the clock; sent by a delegated run that a person holds up."""
        self._run.change(with_delegate_held, held, self._run.heard())
        show_details(self._run)

    @workflow.update
    def extend_budget(self, *limits: Any) -> dict[str, float]:
        """Raise limits of this run; return those that hold now."""
        self._run.heard()
        raised = extension(self._run.state, first_of(limits))
        self._run.change(extended, raised)
        return self._run.state.extended

    @extend_budget.validator
    def _raises_a_limit(self, *limits: Any) -> None:
        self.refuse_when_over()
        extension(self._run.state, first_of(limits))

    @workflow.update
    def requeue(self, *letter_id: Any) -> None:
        """Send a dead letter again, before the next reasoning step."""
        self._run.heard()
        self._run.change(recovery.requeued, recovery.parsed_letter_id(first_of(letter_id)))

    def refuse_requeue(self) -> None:
        """Refuse to send a letter again where nothing would send it.

        Raises:
            ValueError: With what to do first.
        """

    @requeue.validator
    def _is_a_dead_letter(self, *letter_id: Any) -> None:
        self.refuse_when_over()
        self.refuse_requeue()
        recovery.requeued(self._run.state, recovery.parsed_letter_id(first_of(letter_id)))

    @workflow.query
    def status(self) -> AgentStatus:
        """Where the run stands, while it goes on by the clock of the worker that is asked."""
        is_over = self._run.state.is_over
        return status(self._run.state, self._run.now if is_over else wall_time())

    @workflow.query
    def conversation(self, *page: Any) -> list[ShownMessage]:
        """The messages as the model would see them; of a long conversation a page: `{"offset": 0, "limit": 100}`."""
        return shown_conversation(self._run.state, parsed_page(first_of(page)))
