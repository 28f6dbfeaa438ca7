"""The run of a session: a run of the agent loop, divided into turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec

from orga.workflows.decisions.sessions.turns import session_details
from orga.workflows.phases.agent_run import Run
from orga.workflows.types.models.usage import UsageTotals
from orga.workflows.types.sessions.session import SessionState

P = ParamSpec("P")


class SessionRun(Run):
    """A run of `SessionWorkflow`."""

    @property
    def session_state(self) -> SessionState:
        if not isinstance(self.state, SessionState):
            raise TypeError(f"a session needs a SessionState, not {type(self.state).__name__}")
        return self.state

    def change_session(
        self, decide: Callable[Concatenate[SessionState, P], SessionState], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        self.change_state(lambda _: decide(self.session_state, *args, **kwargs))

    @property
    def waits_for_cut_calls(self) -> bool:
        """Always true: the next turn begins after all work of the previous one has ended."""
        return True

    @property
    def is_waiting_given_up(self) -> bool:
        """True if an abort ends the session, so that nothing follows."""
        return self.state.aborted is not None

    @property
    def lookup_id_prefix(self) -> str:
        """Contains the turn, so that lookups of two turns never share an idempotency key."""
        return f"{super().lookup_id_prefix}.{self.session_state.session.turn}"

    def usage_totals(self) -> UsageTotals:
        """Return the usage of all turns."""
        return self.session_state.total_usage

    def details(self) -> str:
        return session_details(self.session_state, self.waiting_lines())
