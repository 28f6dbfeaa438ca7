"""The run of a session: an agent's run that knows of turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec

from orga.workflows.decisions.sessions.details import session_details
from orga.workflows.phases.run import Run
from orga.workflows.types.sessions.session import SessionState
from orga.workflows.types.usage import UsageTotals

P = ParamSpec("P")


class SessionRun(Run):
    """A run of `SessionWorkflow`."""

    @property
    def session_state(self) -> SessionState:
        """The state, which is a session's."""
        if not isinstance(self.state, SessionState):
            raise TypeError(f"the state of a session is no {type(self.state).__name__}")
        return self.state

    def change_session(
        self, decide: Callable[Concatenate[SessionState, P], SessionState], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Set the state to what `decide` makes of it."""
        self.change(lambda _: decide(self.session_state, *args, **kwargs))

    @property
    def awaits_calls(self) -> bool:
        """The next turn begins once nothing of the one before it runs any more."""
        return True

    @property
    def waits_no_more(self) -> bool:
        """An abort ends the session, and nobody reads on."""
        return self.state.aborted is not None

    @property
    def lookups_place(self) -> str:
        """Those of each turn have places of their own, so that no key comes twice."""
        return f"{super().lookups_place}.{self.session_state.session.turn}"

    def spent(self) -> UsageTotals:
        """Return what all turns have used."""
        return self.session_state.total_usage

    def details(self) -> str:
        """Return where the session stands, its turn with it."""
        return session_details(self.session_state, self.waits())
