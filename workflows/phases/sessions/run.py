"""The run of a session: an agent's run that knows of turns."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

from temporalio import workflow

from orga.workflows.decisions.sessions.shown import details
from orga.workflows.phases.control.run import CutShort
from orga.workflows.phases.run import Run
from orga.workflows.types.sessions.session import SessionState
from orga.workflows.types.usage import UsageTotals

P = ParamSpec("P")


class SessionRun(Run):
    """A run of `SessionWorkflow`."""

    @property
    def talk(self) -> SessionState:
        """The state, which is a session's."""
        if not isinstance(self.state, SessionState):
            raise TypeError(f"the state of a session is no {type(self.state).__name__}")
        return self.state

    def converse(
        self, decide: Callable[Concatenate[SessionState, P], SessionState], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Set the state to what `decide` makes of it."""
        self.change(lambda _: decide(self.talk, *args, **kwargs))

    @property
    def awaits_calls(self) -> bool:
        """The next turn begins once nothing of the one before it runs any more."""
        return True

    async def settle(self, tasks: Sequence[asyncio.Task[Any]], is_cut_short: CutShort) -> None:
        """Settle them; of a turn that is cut wait for what ignores that, too, as its model has to read what came of it.

        An abort is no such end: the session ends, and nobody reads on.
        """
        await super().settle(tasks, is_cut_short)
        if self.is_interrupted() and not all(task.done() for task in tasks):
            await workflow.wait_condition(lambda: self.state.aborted is not None or all(task.done() for task in tasks))

    def spent(self) -> UsageTotals:
        """Return what all turns have used."""
        return self.talk.session.usage.plus_totals(self.talk.usage)

    def details(self) -> str:
        """Return where the session stands, its turn with it."""
        return details(self.talk)
