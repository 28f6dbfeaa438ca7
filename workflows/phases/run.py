"""The run as one value, shared by the phases and the handlers of a workflow."""

import asyncio
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from temporalio import workflow

from workflows.phases.counts import count_circuits
from workflows.phases.length import Length, length
from workflows.types.context import Setup
from workflows.types.input import LoopConfig
from workflows.types.notes import NOTES_MEMO
from workflows.types.state import AgentState

P = ParamSpec("P")


class Run:
    """Holds the state, and changes it through pure functions only; what they note goes into the history at once."""

    def __init__(self, state: AgentState) -> None:
        self.state = state
        self.slots = asyncio.Semaphore(state.config.max_concurrent_tools)
        """One for each tool call that may be in flight."""
        self.length = Length()
        """Of the history, when the latest activity had ended."""

    @property
    def setup(self) -> Setup:
        """What the run works with, once it is prepared."""
        if self.state.setup is None:
            raise RuntimeError("the run is not prepared yet")
        return self.state.setup

    @property
    def config(self) -> LoopConfig:
        """The settings that hold now."""
        return self.state.config

    def prepare(self, setup: Setup) -> None:
        """Take the setup in; the slots follow its config."""
        self.state = self.state.model_copy(update={"setup": setup})
        self.slots = asyncio.Semaphore(setup.config.max_concurrent_tools)

    def change(
        self, decide: Callable[Concatenate[AgentState, P], AgentState], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Set the state to what `decide` makes of it."""
        state = decide(self.state, *args, **kwargs)
        if state.notes:
            count_circuits(state.notes)
            workflow.upsert_memo(
                {NOTES_MEMO: [note.model_dump(mode="json", exclude_unset=True) for note in state.notes]}
            )
            state = state.model_copy(update={"notes": ()})
        self.state = state

    def measure(self) -> None:
        """Take the length of the history, now that an activity has ended."""
        self.length = length()

    def is_interrupted(self) -> bool:
        """Return whether what is in flight has to be cut short: an abort, or the ending is decided."""
        return self.state.aborted is not None or self.state.stop is not None
