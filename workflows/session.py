"""The session as a workflow: a conversation that may last for months. Each message is a turn with budgets of its own.

Between two turns the session waits for a message. Its clock is stopped, and its only timer is that of `idle_timeout_s`.
A turn works like an agent's run (`workflows/agent.py`). The end of a turn does not end the session, but an abort does.
The conversation survives continue-as-new, within a turn and between two turns.

A client that awaits a turn has an open update. Continue-as-new would lose it, so all these updates are answered before
that, and the clients call again (`prepare_continue_as_new`).
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Concatenate, ParamSpec

from temporalio import workflow

from orga.workflows.agent import AgentLoop
from orga.workflows.decisions import observe
from orga.workflows.decisions.continue_as_new import MAX_CARRIED_BYTES, state_bytes
from orga.workflows.decisions.control.interventions import signal_text, with_reopened_end, with_rest_refused
from orga.workflows.decisions.sessions import messages, turns
from orga.workflows.decisions.sessions.turns import (
    first_session,
    initial_session_state,
    session_details,
    session_result,
    session_status,
)
from orga.workflows.lifecycle import segment_start, state_to_begin_with
from orga.workflows.phases.agent_run import Run
from orga.workflows.phases.control.ask_people import withdraw_all_questions
from orga.workflows.phases.control.handlers import first_argument
from orga.workflows.phases.control.run import ContinueAsNew, wall_time
from orga.workflows.phases.control.visibility import show_details, show_phase, show_progress_now, wait_if_paused
from orga.workflows.phases.knowledge import persist_learnings
from orga.workflows.types.control import InterventionKind, Stop
from orga.workflows.types.models.usage import UsageTotals
from orga.workflows.types.record import parse_record
from orga.workflows.types.sessions.session import Session, SessionState
from orga.workflows.types.sessions.session_input import AwaitTurnArgument, InterruptArgument, SessionInput
from orga.workflows.types.sessions.session_result import SessionResult, SessionStatus, TurnResult

P = ParamSpec("P")


class _SessionRun(Run):
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
    def session(self) -> Session:
        return self.session_state.session

    @property
    def waits_for_cut_calls(self) -> bool:
        """Always true, because the next turn begins only after all work of the previous one has ended."""
        return True

    @property
    def is_waiting_given_up(self) -> bool:
        """True if an abort ends the session, because no turn follows."""
        return self.state.aborted is not None

    @property
    def lookup_id_prefix(self) -> str:
        """The prefix with the turn, so that lookups of two turns never share an idempotency key."""
        return f"{super().lookup_id_prefix}.{self.session.turn}"

    def usage_totals(self) -> UsageTotals:
        return self.session_state.total_usage

    def details(self, waits: Sequence[str]) -> str:
        return session_details(self.session_state, waits)


MAX_AWAIT_UPDATES = 6
"""Updates `await_turn` that may be open at a time. The server allows ten open updates, and messages need some.
Further clients get the answer to call again later."""

CROWDED_RETRY_S = 30.0
"""Seconds until these clients call again. It is long, because a run accepts only 2,000 updates. In the meantime the
query `turns` shows the result."""


@workflow.defn(name="SessionWorkflow", sandboxed=False)
class SessionWorkflow(AgentLoop[SessionResult]):
    """Holds one conversation."""

    @workflow.init
    def __init__(self, *given: Any) -> None:
        """Take any arguments, as `AgentWorkflow` does."""
        start = segment_start(given)
        state, problem = state_to_begin_with(
            lambda: first_session(*start),
            lambda: initial_session_state(SessionInput(), start.origin, start.now),
        )
        self._session = _SessionRun(state)
        self._interrupted_turn = 0
        """The number of the turn that the session's ending interrupted, or 0."""
        self._is_leaving = False
        """True if this segment is about to continue as new."""
        self._open_awaits = 0
        """The number of updates `await_turn` that wait."""
        self._has_ended_turn = False
        """True if this segment has ended a turn. Until then it begins a waiting message before it continues as new."""
        self.begin_run(self._session, problem)

    @workflow.run
    async def run(self, *given: Any) -> SessionResult:
        return await self.run_to_result()

    @workflow.update
    def send(self, *message: Any) -> int:
        """Send a message. Returns the turn that it begins or guides."""
        self._run.record_intervention()
        sent = messages.parsed_message(first_argument(message))
        self._session.change_session(messages.with_sent_message, sent)
        return self._session.session.taken[sent.message_id].turn

    @send.validator
    def _validate_message(self, *message: Any) -> None:
        messages.check_message(self._session.session_state, messages.parsed_message(first_argument(message)))

    @workflow.signal(name="send")
    def take_message(self, *message: Any) -> None:
        """Take a message as the update does."""
        self.take_decision("send", message)

    @workflow.update
    async def await_turn(self, *wanted: Any) -> dict[str, Any]:
        """Return the `result` of a turn once it has ended, or `again_in_s`, the seconds until the next call."""
        self._run.record_intervention()
        turn = _wanted_turn(wanted)
        if self._open_awaits < MAX_AWAIT_UPDATES:
            self._open_awaits += 1
            await workflow.wait_condition(
                lambda: self._is_leaving or self._run.state.is_over or bool(self._find_result(turn))
            )
            self._open_awaits -= 1
        ended = self._find_result(turn)
        if ended is not None:
            return {"result": ended.model_dump(mode="json")}
        has_room_soon = self._is_leaving  # in the next segment
        return {"again_in_s": 0.0 if has_room_soon else CROWDED_RETRY_S}

    def _find_result(self, turn: int) -> TurnResult | None:
        return turns.find_turn_result(self._session.session, turn)

    @await_turn.validator
    def _validate_awaited_turn(self, *wanted: Any) -> None:
        turns.check_awaited_turn(self._session.session, _wanted_turn(wanted))

    @workflow.update
    def interrupt(self, *why: Any) -> int:
        """Interrupt the current turn. Returns its number."""
        self._run.record_intervention()
        turn = self._session.session.turn
        self._interrupt_turn(messages.parsed_interrupt(first_argument(why)))
        return turn

    @interrupt.validator
    def _validate_interrupt(self, *why: Any) -> None:
        messages.check_interrupt(self._session.session_state, messages.parsed_interrupt(first_argument(why)).turn)

    @workflow.signal(name="interrupt")
    def take_interrupt(self, *why: Any) -> None:
        """Interrupt the current turn as the update does."""
        self.take_decision("interrupt", why)

    def _interrupt_turn(self, wanted: InterruptArgument) -> None:
        why = signal_text((wanted.why,)) or "interrupted by the user"
        self._session.change_session(messages.with_interrupted_turn, why)

    def decide(self, kind: InterventionKind, decision: object, now: datetime) -> None:
        """Record a decision, a message or an interruption. Raise ValueError if it cannot be accepted."""
        match kind:
            case "send":
                sent = messages.parsed_message(decision)
                messages.check_message(self._session.session_state, sent)
                self._session.change_session(messages.with_sent_message, sent)
            case "interrupt":
                wanted = messages.parsed_interrupt(decision)
                messages.check_interrupt(self._session.session_state, wanted.turn)
                self._interrupt_turn(wanted)
            case _:
                super().decide(kind, decision, now)

    @workflow.update
    def close(self, *_: Any) -> None:
        """End the session after the current turn."""
        self._run.record_intervention()
        self._session.change_session(messages.with_closing)

    @workflow.signal(name="close")
    def take_close(self, *_: Any) -> None:
        """End the session as the update does."""
        self._run.record_intervention()
        self._session.change_session(messages.with_closing)

    @workflow.query
    def status(self) -> SessionStatus:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The session's status. While it runs, times come from the clock of the worker that answers."""
        is_over = self._run.state.is_over
        return session_status(self._session.session_state, self._run.now if is_over else wall_time())

    @workflow.query(name="turns")
    def latest(self) -> list[TurnResult]:
        """The results of the last turns, oldest first."""
        return list(turns.results_within_limit(self._session.session))

    async def run_until_stop(self) -> Stop:
        """Run one turn after the other until the session ends, and return its ending."""
        run = self._session
        while (ending := await self._begin_turn()) is None:
            stop = await super().run_until_stop()
            run.change_state(observe.with_stop, stop)
            await run.wait_for_abandoned_tasks()  # they must not act in the next turn
            await super().set_fallback_output(stop)
            run.change_state(with_reopened_end)
            if (stop := run.state.stop) is not None:  # None if guidance has resumed the turn
                await self._end_turn(stop)
        return ending

    async def _end_turn(self, stop: Stop) -> None:
        """End the turn: add its unread guidance to the conversation, and close its questions."""
        run, turn = self._session, self._session.session.turn
        run.change_state(observe.with_inbox_drained, "reasoning")
        withdraw_all_questions(run)
        run.change_session(turns.with_turn_ended, stop, run.now)
        show_progress_now(run)
        self._has_ended_turn = True
        await self._store_turn_learnings(turn)

    async def _store_turn_learnings(self, turn: int) -> None:
        await persist_learnings(self._run, turns.unstored_learnings(self._session.session_state), turn)

    async def _begin_turn(self) -> Stop | None:
        """Begin the next turn once there is a message, unless one is running. If the session ends, return how."""
        run = self._session
        if run.session.turn:
            return None
        run.change_session(turns.with_idle_clock, run.now)
        show_details(run)
        show_phase(run)
        while (ending := turns.stop_between_turns(run.session_state)) is None:
            if run.state.paused:
                await wait_if_paused(run, may_continue_as_new=True, is_over=lambda: run.session.closing)
                run.change_session(turns.with_idle_clock_restarted, run.now)
                continue
            has_message = bool(run.session.queue)
            if run.is_continue_as_new_due and (self._has_ended_turn or not has_message):
                raise ContinueAsNew
            if has_message:
                run.change_session(turns.with_turn_begun, run.now)
                show_phase(run)
                return None
            try:
                await run.wait_until(
                    self._has_news,
                    may_continue_as_new=True,
                    timeout_s=turns.idle_seconds_left(run.session_state, run.now),
                    summary="until the session ends without a message",
                )
            except TimeoutError:
                run.advance_clock()
                return turns.idle_timeout_stop(run.session_state)
        return ending

    def _has_news(self) -> bool:
        state = self._session.session_state
        return state.paused or bool(state.session.queue) or turns.stop_between_turns(state) is not None

    def refuse_requeue(self) -> None:
        """Refuse a requeue between two turns, because a call belongs to a turn, with its budget and its user."""
        if not self._session.session.turn:
            raise ValueError("no turn is running that could send it again; send a message first")

    async def set_fallback_output(self, stop: Stop) -> None:
        """Do nothing: each turn has already used its gathered text."""

    async def prepare_continue_as_new(self) -> None:
        """Answer all updates that await a turn, so that their clients call again. Shorten results if needed."""
        self._is_leaving = True
        await workflow.wait_condition(workflow.all_handlers_finished)
        if state_bytes(self._run.state) > MAX_CARRIED_BYTES:
            self._session.change_session(turns.with_bounded_results)

    def settle_open_work(self, stop: Stop) -> None:
        """End the current turn together with the session. Record a result without a turn for each waiting message."""
        run, turn = self._session, self._session.session.turn
        run.change_state(with_rest_refused)
        run.change_state(observe.with_inbox_drained)
        if turn:  # the ending of the session interrupts this turn
            withdraw_all_questions(run)
            run.change_session(turns.with_turn_ended, stop, run.now)
            self._interrupted_turn = turn
        run.change_session(turns.with_session_end)

    async def finish_run(self, ended: SessionResult) -> SessionResult:
        if self._interrupted_turn:
            await self._store_turn_learnings(self._interrupted_turn)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return ended

    def result(self, stop: Stop) -> SessionResult:
        return session_result(self._session.session_state, stop, self._run.now)


def _wanted_turn(arguments: tuple[Any, ...]) -> int:
    return parse_record(AwaitTurnArgument, first_argument(arguments)).turn
