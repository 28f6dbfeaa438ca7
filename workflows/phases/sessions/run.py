"""The run of a session: an agent's run that knows of turns."""

from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec

from temporalio import workflow

from orga.workflows.decisions.hydration import with_hydration
from orga.workflows.decisions.sessions import turns
from orga.workflows.decisions.sessions.shown import details
from orga.workflows.phases.run import Run
from orga.workflows.types.hydration import PreHydration, Reference, Resolved
from orga.workflows.types.sessions.session import SessionState
from orga.workflows.types.usage import UsageTotals
from orga.workflows.types.versions import EACH_MESSAGE_LOOKED_UP

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

    @property
    def waits_no_more(self) -> bool:
        """An abort ends the session, and nobody reads on."""
        return self.state.aborted is not None

    @property
    def lookups_place(self) -> str:
        """Those of later turns have places of their own, so that no key comes twice."""
        place, turn = super().lookups_place, self.talk.later_turn
        return f"{place}.{turn}" if turn else place

    def references(self, config: PreHydration) -> tuple[Reference, ...]:
        """Return what the message of the turn refers to and no turn before has resolved."""
        due = turns.unresolved(self.talk, config)
        if due and self.talk.later_turn and not workflow.patched(EACH_MESSAGE_LOOKED_UP):
            return ()
        return due

    def take_lookups(self, items: Sequence[Resolved], max_context_tokens: int) -> None:
        """Take in what was found, as a part of the turn behind the first one."""
        self.converse(turns.with_resolved, items)
        self.change(with_hydration, items, max_context_tokens, is_of_turn=bool(self.talk.later_turn))

    def spent(self) -> UsageTotals:
        """Return what all turns have used."""
        return self.talk.session.usage.plus_totals(self.talk.usage)

    def details(self) -> str:
        """Return where the session stands, its turn with it."""
        return details(self.talk)
