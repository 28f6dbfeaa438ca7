"""AgentWorkflow: observe, reason, gate, act, until an answer or a limit."""

import asyncio
from typing import Any, NoReturn

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from workflows.decisions import interventions, observe, roll_over
from workflows.decisions.begin import first_state
from workflows.decisions.limits import remaining_s, stop_reason
from workflows.decisions.result import result, shown_conversation, status
from workflows.decisions.summaries import call_summary, details
from workflows.phases import act, attributes, gate, reason, spans
from workflows.phases.failures import failure_message, failure_text, is_invalid_input, is_out_of_time
from workflows.phases.prepare import setup_of
from workflows.types.context import InterventionKind, Setup
from workflows.types.input import AgentInput, InvalidInput, LoopConfig
from workflows.types.result import AgentResult, StopReason
from workflows.types.state import Intervention
from workflows.types.status import AgentStatus, ShownMessage


@workflow.defn(name="AgentWorkflow")
class AgentWorkflow:
    """Runs one agent. Signals only record; the loop acts. A handler takes any arguments: one that could not be called
    would fail the workflow task again and again.
    """

    @workflow.init
    def __init__(self, *given: Any) -> None:
        """Take the input as any JSON, and any number of it: bad input fails the run with a clear error, hangs nothing.

        `given` is the input; in a run that continues another as new, null and the state that the other carried.
        """
        info = workflow.info()
        self._problem = ""
        self._last = ""
        before = info.continued_run_id
        carried = given[1] if before and len(given) > 1 else None
        try:
            raw = given[0] if given else None
            self._state = first_state(raw, carried, before, info.original_execution_run_id, workflow.now())
        except InvalidInput as error:
            self._problem = str(error)
            placeholder = AgentInput(task="(invalid input)")
            self._state = first_state(placeholder, None, None, info.original_execution_run_id, workflow.now())

    @workflow.run
    async def run(self, *given: Any) -> AgentResult:
        """Run to an ending. Temporal's own cancellation ends a run as an abort does, with a result.

        Raises:
            ApplicationError: `InvalidInput`, not retryable, for input that no run can start with.
        """
        if self._problem:
            raise ApplicationError(self._problem, type="InvalidInput", non_retryable=True)
        loop = asyncio.create_task(self._loop())
        try:
            return await asyncio.shield(loop)
        except asyncio.CancelledError:
            self._state = interventions.with_abort(self._state, "cancelled")
            return await loop

    async def _loop(self) -> AgentResult:
        setup = self._state.setup or await self._prepared()
        if setup is None:
            return self._ended(self._stop(self._state.input.config) or ("error", "nothing was prepared"), None)
        spans.name_run(setup.agent)
        watch = asyncio.create_task(self._watch_clock(setup.config))
        await self._unpaused(setup)
        while (stop := self._stop(setup.config)) is None:
            await self._iterate(setup)
        watch.cancel()
        return self._ended(stop, setup)

    async def _prepared(self) -> Setup | None:
        """Return the setup, or None when the run ends before it has one."""
        try:
            setup = await setup_of(self._state.input, self._is_interrupted)
        except ActivityError as error:
            if is_invalid_input(error):
                raise ApplicationError(failure_message(error), type="InvalidInput", non_retryable=True) from error
            reason_of = "timeout" if is_out_of_time(error) else "error"
            self._state = self._state.model_copy(update={"stop": (reason_of, failure_text(error))})
            return None
        if setup is not None:
            self._state = self._state.model_copy(update={"setup": setup})
            attributes.show_start(self._state, setup)
        return setup

    async def _iterate(self, setup: Setup) -> None:
        self._state = interventions.taken_in(self._state)
        self._enter("reasoning")
        with spans.phase_span("reason", self._state.iteration + 1):
            proposed = await reason.propose(self._state, setup, self._is_interrupted)
        if isinstance(proposed, reason.NoReply):
            is_asked_again = proposed.is_out_of_time and remaining_s(self._state, setup.config, workflow.now()) > 0
            if proposed.detail and not is_asked_again:
                self._state = self._state.model_copy(update={"stop": ("error", proposed.detail)})
            return await self._unpaused(setup)
        reply, kind = proposed.judged.reply, proposed.judged.kind
        self._state = observe.with_reply(self._state, reply, proposed.seen)
        await self._unpaused(setup)
        if self._is_interrupted():
            self._leave_unjudged(proposed)
        elif kind in {"calls", "answer", "cut_answer"}:
            await self._judge_and_act(proposed, setup)
        else:
            self._state = observe.with_repair(self._state, proposed.judged)
        await self._unpaused(setup)
        attributes.show_progress(self._state, setup)
        self._roll_over_if_due(setup)
        return None

    async def _judge_and_act(self, proposed: reason.Proposed, setup: Setup) -> None:
        self._enter("gating")
        with spans.phase_span("gate", self._state.iteration):
            gated = await gate.judge(proposed, self._state, setup, self._is_interrupted)
        if gated is None:
            return self._leave_unjudged(proposed)
        if not gated.reply.calls:
            return self._take_answer(proposed, gated)
        await self._unpaused(setup)
        if self._is_interrupted():
            self._state = observe.with_unjudged(self._state, gated.reply, act.nothing_run(proposed))
            return None
        self._last = "; ".join(call_summary(call, setup.tool(call.name)) for call in gated.reply.calls[:3])
        self._enter("acting")
        with spans.phase_span("act", self._state.iteration):
            acted = await act.run_tools(gated, self._state, setup, self._is_interrupted)
        denied = observe.denied_calls(acted.outcomes, acted.verdicts)
        self._state = observe.with_outcomes(self._state, acted.reply, acted.outcomes, denied)
        return None

    def _leave_unjudged(self, proposed: reason.Proposed) -> None:
        self._state = observe.with_unjudged(self._state, proposed.judged.reply, act.nothing_run(proposed))

    def _take_answer(self, proposed: reason.Proposed, gated: gate.Gated) -> None:
        if gated.answer.decision != "allow":
            self._state = observe.with_denied_answer(self._state, gated.reply, gated.answer)
        elif not proposed.judged.is_usable:
            self._state = observe.with_repair(self._state, proposed.judged)
        else:
            self._state = observe.with_answer(self._state, gated.reply)
            if not self._state.inbox and self._state.aborted is None:
                self._state = self._state.model_copy(update={"stop": ("completed", "")})

    def _stop(self, config: LoopConfig) -> tuple[StopReason, str] | None:
        if self._state.stop is not None and self._state.aborted is None:
            return self._state.stop
        return stop_reason(self._state, config, workflow.now())

    def _is_interrupted(self) -> bool:
        return self._state.aborted is not None or self._state.stop is not None

    async def _watch_clock(self, config: LoopConfig) -> None:
        """End the run when its time is up: one timer for the whole run, started anew after a pause."""
        while self._state.stop is None:
            await workflow.wait_condition(lambda: self._state.clock.paused_at is None)
            left = remaining_s(self._state, config, workflow.now())
            if left <= 0:
                timeout: tuple[StopReason, str] = ("timeout", f"limit of {config.timeout_s:g} s")
                self._state = self._state.model_copy(update={"stop": timeout})
                return
            try:
                await workflow.wait_condition(lambda: self._state.clock.paused_at is not None, timeout=left)
            except TimeoutError:
                continue

    async def _unpaused(self, setup: Setup) -> None:
        """Stand still between phases while paused; an abort goes through."""
        if self._state.clock.paused_at is None:
            return
        phase = self._state.phase
        self._enter("paused")
        attributes.show_phase(self._state, setup)
        await workflow.wait_condition(lambda: self._state.clock.paused_at is None or self._is_interrupted())
        self._enter(phase)
        attributes.show_phase(self._state, setup)

    def _enter(self, phase: str) -> None:
        self._state = self._state.model_copy(update={"phase": phase})
        workflow.set_current_details(details(self._state, self._state.setup, self._last))

    def _roll_over_if_due(self, setup: Setup) -> None:
        info = workflow.info()
        events, size = info.get_current_history_length(), info.get_current_history_size()
        if roll_over.is_due(self._state, setup, events, size, info.is_continue_as_new_suggested()):
            self._roll_over()

    def _roll_over(self) -> NoReturn:
        workflow.continue_as_new(args=[None, roll_over.carried(self._state, workflow.info().run_id)])

    def _ended(self, stop: tuple[StopReason, str], setup: Setup | None) -> AgentResult:
        self._state = self._state.model_copy(update={"stop": stop})
        self._enter("done")
        if setup is not None:
            attributes.show_end(self._state, setup, stop[0])
        return result(self._state, stop, workflow.now())

    @workflow.signal
    def steer(self, *guidance: Any) -> None:
        """Guide the next reasoning step."""
        self._record("steer", guidance)

    @workflow.signal
    def add_context(self, *context: Any) -> None:
        """Append to what the agent knows."""
        self._record("add_context", context)

    @workflow.signal
    def pause(self, *_: Any) -> None:
        """Stop before the next phase; clocks and budgets stand still."""
        self._state = interventions.with_pause(self._state, workflow.now())

    @workflow.signal
    def resume(self, *_: Any) -> None:
        """Go on after a pause."""
        self._state = interventions.with_resume(self._state, workflow.now())

    @workflow.signal
    def abort(self, *why: Any) -> None:
        """Cancel what is in flight and end."""
        self._state = interventions.with_abort(self._state, interventions.signal_text(why))

    def _record(self, kind: InterventionKind, arguments: tuple[Any, ...]) -> None:
        guidance = Intervention(kind=kind, text=interventions.signal_text(arguments))
        self._state = interventions.with_guidance(self._state, guidance)

    @workflow.query
    def status(self) -> AgentStatus:
        """Where the run stands."""
        return status(self._state, workflow.now())

    @workflow.query
    def conversation(self) -> list[ShownMessage]:
        """The messages as the model would see them."""
        return shown_conversation(self._state)
