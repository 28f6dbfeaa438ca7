"""The agent's run: what `ControlledRun` needs of its state, the room of its calls, why it ends, what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from opentelemetry.trace import get_current_span
from temporalio import workflow
from temporalio.common import SearchAttributeUpdate

from orga.activities.instruments import count_opened_circuit, count_recovery
from orga.workflows.decisions import continue_as_new, limits
from orga.workflows.decisions.result import agent_run_details
from orga.workflows.phases.control.run import ControlledRun, CutShort, HistoryLength, Interrupted
from orga.workflows.phases.control.visibility import ask_people, show_progress_now, upsert_attributes, withdraw_question
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.control import Note, Stop
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.knowledge import StepOutput
from orga.workflows.types.names import AGENT, COST_USD, DEAD_LETTERS, OPEN_CIRCUITS, TENANT
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.setup import PrepareRequest, Setup
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.gate import Verdict
from orga.workflows.types.usage import UsageTotals
from orga.workflows.types.versions import FIRST_CALLS_SHOWN


def count_notes(notes: tuple[Note, ...]) -> None:
    """Count the circuits that opened, and the recoveries."""
    if workflow.unsafe.is_replaying():
        return
    for note in notes:
        if note.event == "CircuitOpened":
            count_opened_circuit(note.data["tool"], "run")
        elif note.event == "RecoveryTriggered":
            count_recovery(note.data)


def name_run(setup: Setup) -> None:
    """Name the run's span after its agent, and say which model it has."""
    span = get_current_span()
    span.update_name(f"invoke_agent {setup.agent}")
    provider, _, model = setup.model.partition(":")
    span.set_attribute(names.AGENT, setup.agent)
    span.set_attribute(names.PROVIDER, provider)
    span.set_attribute(names.REQUEST_MODEL, model)


def show_verdicts(verdicts: tuple[Verdict, ...]) -> None:
    """Note on the phase's span how much was turned down."""
    span = get_current_span()
    if span.is_recording():
        span.set_attribute(names.DENIED, sum(verdict.decision == "deny" for verdict in verdicts))


MAX_STARTS = 8
"""Delegates started in one workflow task, whose message to the server may have 4 MB: each is told the facts."""


class Run(ControlledRun[AgentState]):
    """A run of `AgentWorkflow`."""

    def __init__(self, state: AgentState) -> None:
        super().__init__(state)
        self.are_calls_shown = state.iteration > 0
        """Whether it was written how far the run is when its first calls began; not asked again."""
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

    def wants(self, request: PrepareRequest) -> PrepareRequest:
        """Return what the run asks its setup for beside what its input says."""
        return request

    def prepare(self, setup: Setup) -> None:
        """Take the setup in; the slots follow its config."""
        self.state = self.state.with_task(setup=setup)
        self.slots = asyncio.Semaphore(setup.config.max_concurrent_tools)

    @property
    def awaits_calls(self) -> bool:
        """Whether what is cut short is waited for until it has ended: for a turn of a session; no other run waits.

        A fork of a delegate has no parent.
        """
        return self.state.input.lineage.is_awaited and self.state.forked_from is None

    @property
    def waits_no_more(self) -> bool:
        """Whether that is given up: who delegated says so by a cancellation, behind an abort."""
        return self.is_cancelled

    async def settle(self, tasks: Sequence[asyncio.Task[Any]], is_cut_short: CutShort) -> None:
        """Settle them; where calls are awaited, wait for what ignores that it is cut, too: it could act behind that."""
        await super().settle(tasks, is_cut_short)
        if self.awaits_calls and self.is_interrupted() and not all(task.done() for task in tasks):
            await workflow.wait_condition(lambda: self.waits_no_more or all(task.done() for task in tasks))

    def stop_reason(self) -> Stop | None:
        """Return why the run has to end now; None while it may go on."""
        state = self.state
        return state.stop if state.stop is not None and state.aborted is None else self.limit_reached()

    def limit_reached(self) -> Stop | None:
        """Return which limit is reached, an abort among them."""
        return limits.stop_reason(self.state, self.state.config, self.now)

    @property
    def lookups_place(self) -> str:
        """What the places of lookups begin with: they stand ahead of the first iteration."""
        return "0"

    def outputs(self) -> tuple[StepOutput, ...]:
        """Return what is kept as evidence beside what it has learnt."""
        return ()

    def details(self) -> str:
        """Return where the run stands, what it spent, what it did last."""
        return agent_run_details(self.state, self.waits())

    def spent(self) -> UsageTotals:
        """Return what was used so far."""
        return self.state.usage

    def progress(self) -> list[SearchAttributeUpdate[Any]]:
        """Return how far the run is, and what it cost."""
        cost = self.spent().cost_usd
        return [*super().progress(), *([] if cost is None else [COST_USD.value_set(cost)])]

    def commands(self, run_id: str, wait: ShownQuestion) -> list[str]:
        """Return the commands of which one decides what the run asks, or gives it more budget."""
        return limits.budget_commands(run_id, wait)

    def watch_notes(self, notes: tuple[Note, ...]) -> None:
        """Count circuits and recoveries."""
        count_notes(notes)

    def can_be_carried(self, so_far: HistoryLength) -> bool:
        """Return whether the state fits into a payload, and nothing is better finished first."""
        return super().can_be_carried(so_far) and continue_as_new.can_continue_as_new(self.state)

    def end_if_outgrown(self) -> None:
        """End where the history is long and the state too large to continue as new: there is no other way on."""
        if super().can_be_carried(self.length):
            self.change(continue_as_new.with_end_if_outgrown)


async def ask_for_budget(run: Run, stop: Stop, is_raised: Callable[[], bool], *, may_roll_over: bool) -> Stop | None:
    """Wait until the limit is raised; return the ending when a person declines it."""
    question = limits.question(run.state, stop, run.now)
    run.change(limits.with_budget_question, question)
    with suppress(Interrupted):  # the loop sees by itself that the run is to end
        asked = await ask_people(run, question, is_moot=is_raised, may_roll_over=may_roll_over)
        declined = asked.resolution
        if declined is not None:
            return ("aborted", declined.reason or "aborted by the operator") if declined.choice == "abort" else stop
    return None


async def next_stop(run: Run) -> Stop | None:
    """Return why the run ends now, an answer that was let through among it; ahead of a limit a person may be asked."""
    while (stop := run.stop_reason()) is not None and limits.can_ask_for_budget(run.state, stop):
        declined = await ask_for_budget(run, stop, lambda limit=stop: run.stop_reason() != limit, may_roll_over=True)
        if declined is not None:
            return declined
    withdraw_question(run, "budget")
    return stop


MAX_CIRCUITS = 20
"""That are named: the server refuses a value of more than 2 kB, and with it the workflow task."""


def show_start(run: Run) -> None:
    """Write what stays the same in a run."""
    tenant = run.state.input.tenant
    upsert_attributes(
        run,
        AGENT.value_set(run.setup.agent),
        *([TENANT.value_set(tenant)] if tenant else []),
        *run.progress(),
    )


def show_first_calls(run: Run) -> None:
    """Write how far the run is where its first calls begin: one that answers at once has no event more."""
    is_shown, run.are_calls_shown = run.are_calls_shown, True
    if not is_shown and run.setup.loop_version >= FIRST_CALLS_SHOWN:
        show_progress_now(run)


def show_dead_letters(run: Run, others: int = 0) -> None:
    """Write how many calls wait to be sent again, and how much else does."""
    upsert_attributes(run, DEAD_LETTERS.value_set(len(run.state.dead_letters) + others))


def show_circuits(run: Run) -> None:
    """Write the tools that are left alone at the moment: as many as the server takes in one value."""
    tools = sorted(tool for tool, breaker in run.state.breakers.items() if breaker.state == "open")[:MAX_CIRCUITS]
    upsert_attributes(run, OPEN_CIRCUITS.value_set(tools) if tools else OPEN_CIRCUITS.value_unset())
