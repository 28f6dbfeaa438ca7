"""The agent's run: what `ControlledRun` needs of its state, and the room that its calls have."""

import asyncio
from typing import Any

from temporalio.common import SearchAttributeUpdate

from orga.workflows.decisions import roll_over
from orga.workflows.decisions.summaries import details
from orga.workflows.phases.control.clock import Length
from orga.workflows.phases.control.run import ControlledRun
from orga.workflows.phases.telemetry import count_notes
from orga.workflows.types.context import Setup
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.names import COST_USD
from orga.workflows.types.state import AgentState

MAX_STARTS = 8
"""Delegates started in one workflow task, whose message to the server may have 4 MB: each is told the facts."""


class Run(ControlledRun[AgentState]):
    """A run of `AgentWorkflow`."""

    def __init__(self, state: AgentState) -> None:
        super().__init__(state)
        self.slots = asyncio.Semaphore(state.config.max_concurrent_tools)
        """One for each tool call that may be in flight."""
        self.starts = asyncio.Semaphore(MAX_STARTS)
        """One for each delegate that may be on its way to the server."""
        self.brought = 0
        """Bytes that the results of this iteration's calls take in the history so far."""

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
        self.state = self.state.with_task(setup=setup)
        self.slots = asyncio.Semaphore(setup.config.max_concurrent_tools)

    def details(self) -> str:
        """Return where the run stands, what it spent, what it did last."""
        return details(self.state)

    def progress(self) -> list[SearchAttributeUpdate[Any]]:
        """Return how far the run is, and what it cost."""
        cost = self.state.usage.cost_usd
        return [*super().progress(), *([] if cost is None else [COST_USD.value_set(cost)])]

    def watch_change(self, before: AgentState, after: AgentState) -> None:
        """Tell of circuits and recoveries, too."""
        count_notes(after.notes)
        super().watch_change(before, after)

    def may_roll_over(self, now: Length) -> bool:
        """Return whether the state fits into a payload, and nothing is better finished first."""
        return roll_over.is_due(self.state, now.events, now.size, now.is_long)

    def end_if_outgrown(self) -> None:
        """End where the history is long and the state too large to continue as new: there is no other way on."""
        self.change(roll_over.with_outgrown, self.length.events, self.length.size, self.length.is_long)
