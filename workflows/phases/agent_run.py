"""`Run`, an agent's run as one value: its slots for calls, its reasons to stop, its visible progress."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from opentelemetry.trace import get_current_span
from temporalio import workflow
from temporalio.common import SearchAttributeUpdate

from orga.activities.instruments import count_opened_circuit, count_recovery
from orga.workflows.decisions import limits
from orga.workflows.decisions.continue_as_new import can_continue_as_new, with_end_if_outgrown
from orga.workflows.decisions.result import agent_run_details
from orga.workflows.phases.control.ask_people import ask_people, withdraw_question
from orga.workflows.phases.control.run import ControlledRun, CutShort, Interrupted, are_done
from orga.workflows.phases.control.visibility import show_progress_now, upsert_attributes
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.control import Note, Stop
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.knowledge import StepOutput
from orga.workflows.types.models.usage import UsageTotals
from orga.workflows.types.names import AGENT, COST_USD, DEAD_LETTERS, FIRST_CALLS_SHOWN, OPEN_CIRCUITS, TENANT
from orga.workflows.types.setup import Setup
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.gate import Verdict


def describe_span(setup: Setup) -> None:
    """Name the run's span after its agent, and record its model."""
    span = get_current_span()
    span.update_name(f"invoke_agent {setup.agent}")
    provider, _, model = setup.model.partition(":")
    span.set_attribute(names.AGENT, setup.agent)
    span.set_attribute(names.PROVIDER, provider)
    span.set_attribute(names.REQUEST_MODEL, model)


def show_verdicts(verdicts: tuple[Verdict, ...]) -> None:
    """Write the number of denials to the current span."""
    span = get_current_span()
    if span.is_recording():
        span.set_attribute(names.DENIED, sum(verdict.decision == "deny" for verdict in verdicts))


MAX_STARTS = 8
"""Delegates that may be starting at a time. The starts of a workflow task are one message, of at most 4 MB."""


class Run(ControlledRun[AgentState]):
    """A run of the loop. The runs of goals and sessions are subclasses."""

    def __init__(self, state: AgentState) -> None:
        super().__init__(state)
        self.are_calls_shown = state.iteration > 0
        """True if the progress was written when the first calls began, which happens once."""
        self.slots = asyncio.Semaphore(state.config.max_concurrent_tools)
        """One slot for each tool call that may run at a time."""
        self.starts = asyncio.Semaphore(MAX_STARTS)
        """One slot for each delegate that may be starting at a time."""
        self.result_bytes = 0
        """Bytes of this iteration's results in the history so far."""
        self.checked_results: dict[str, str] = {}
        """The problem of a deferred call's result, or "" for none, by idempotency key. Updates wait for it."""

    @property
    def setup(self) -> Setup:
        """The setup, once the run is prepared."""
        if self.state.setup is None:
            raise RuntimeError("the run is not prepared yet")
        return self.state.setup

    @property
    def config(self) -> LoopConfig:
        return self.state.config

    @property
    def pipeline_name(self) -> str:
        """The name of a goal's pipeline, or ""."""
        return ""

    def apply_setup(self, setup: Setup) -> None:
        """Set the setup, and make as many slots as its config wants."""
        self.state = self.state.with_task(setup=setup)
        self.slots = asyncio.Semaphore(setup.config.max_concurrent_tools)

    @property
    def waits_for_cut_calls(self) -> bool:
        """True if an interrupted run waits until its calls have ended. Turns of sessions and their delegates do.

        A fork of such a delegate does not, because it has no parent.
        """
        return self.state.input.lineage.is_awaited and self.state.forked_from is None

    @property
    def is_waiting_given_up(self) -> bool:
        """True if the run gives up the wait of `waits_for_cut_calls`, because its parent has cancelled it."""
        return self.is_cancelled

    async def settle_tasks(self, tasks: Sequence[asyncio.Task[Any]], is_cut_short: CutShort) -> None:
        """Settle the tasks. If `waits_for_cut_calls`, also wait for those that ignore their cancellation."""
        await super().settle_tasks(tasks, is_cut_short)
        if self.waits_for_cut_calls and self.is_interrupted() and not are_done(tasks):
            await workflow.wait_condition(lambda: self.is_waiting_given_up or are_done(tasks))

    def stop_reason(self) -> Stop | None:
        """Return why the run ends now, or None. An abort, which `limit_stop` returns, comes before any other reason."""
        if self.state.aborted is None and self.state.stop is not None:
            return self.state.stop
        return self.limit_stop()

    def limit_stop(self) -> Stop | None:
        """Return the abort or the limit that ends the run now, or None."""
        return limits.stop_reason(self.state, self.state.config, self.now)

    @property
    def lookup_id_prefix(self) -> str:
        """Prefix of the places of lookups, which come before the first iteration."""
        return "0"

    def evidence_outputs(self) -> tuple[StepOutput, ...]:
        """The outputs of a goal's steps, as evidence of its learnings."""
        return ()

    def details(self, waits: Sequence[str]) -> str:
        return agent_run_details(self.state, waits)

    def usage_totals(self) -> UsageTotals:
        return self.state.usage

    def progress_attributes(self) -> list[SearchAttributeUpdate[Any]]:
        attributes = super().progress_attributes()
        cost = self.usage_totals().cost_usd
        return attributes if cost is None else [*attributes, COST_USD.value_set(cost)]

    def observe_notes(self, notes: tuple[Note, ...]) -> None:
        if workflow.unsafe.is_replaying():
            return
        for note in notes:
            if note.event == "CircuitOpened":
                count_opened_circuit(note.data["tool"], "run")
            elif note.event == "RecoveryTriggered":
                count_recovery(note.data)

    @property
    def is_continue_as_new_due(self) -> bool:
        """True if the run has to continue as new and its state is small enough to be carried."""
        return super().is_continue_as_new_due and can_continue_as_new(self.state)

    def end_if_outgrown(self) -> None:
        """End a run with a long history whose state is too large to continue as new."""
        if self.is_history_long:
            self.change_state(with_end_if_outgrown)


async def ask_for_budget(
    run: Run, stop: Stop, is_raised: Callable[[], bool], *, may_continue_as_new: bool
) -> Stop | None:
    """Wait until the limit is raised or the run is interrupted. Return the ending if a person declines, else None."""
    question = limits.budget_question(run.state, stop, run.now)
    run.change_state(limits.with_budget_question, question)
    with suppress(Interrupted):  # the loop notices by itself that the run is to end
        asked = await ask_people(run, question, is_moot=is_raised, may_continue_as_new=may_continue_as_new)
        refusal = asked.resolution
        if refusal is not None and refusal.choice == "abort":
            return Stop("aborted", refusal.reason or "aborted by the operator")
        if refusal is not None:
            return stop
    return None


async def next_stop(run: Run) -> Stop | None:
    """Return why the run ends now, such as an accepted answer, or None. At a limit, a person may be asked first."""
    while (stop := run.stop_reason()) is not None and limits.can_ask_for_budget(run.state, stop):
        ending = await ask_for_budget(
            run, stop, lambda limit=stop: run.stop_reason() != limit, may_continue_as_new=True
        )
        if ending is not None:
            return ending
    withdraw_question(run, "budget")
    return stop


MAX_CIRCUITS = 20
"""Circuits in the search attribute. The server refuses a workflow task with a value of more than 2 kB."""


def show_start(run: Run) -> None:
    tenant = run.state.input.tenant
    fixed = [AGENT.value_set(run.setup.agent)]
    if tenant:
        fixed.append(TENANT.value_set(tenant))
    upsert_attributes(run, *fixed, *run.progress_attributes())


def show_first_calls(run: Run) -> None:
    """Write the progress when the first calls begin. A run that answers at once has no additional event."""
    if not run.are_calls_shown and run.setup.loop_version >= FIRST_CALLS_SHOWN:
        show_progress_now(run)
    run.are_calls_shown = True


def show_dead_letters(run: Run, failed_deliveries: int = 0) -> None:
    upsert_attributes(run, DEAD_LETTERS.value_set(len(run.state.dead_letters) + failed_deliveries))


def show_circuits(run: Run) -> None:
    """Write the tools whose circuits are open, as many as the server accepts in one value."""
    tools = sorted(tool for tool, breaker in run.state.breakers.items() if breaker.state == "open")[:MAX_CIRCUITS]
    upsert_attributes(run, OPEN_CIRCUITS.value_set(tools) if tools else OPEN_CIRCUITS.value_unset())
