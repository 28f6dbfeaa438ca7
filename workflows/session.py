"""The session as a workflow: a conversation that goes on for months, each message a turn with budgets of its own.

Between two turns it waits for a message, with its clock standing still and no timer but the one of `idle_timeout_s`. A
turn is what an agent's run is (`workflows/agent.py`); its end is no end of the session, but for an abort. The
conversation goes on through continue-as-new, in the middle of a turn and between two, as a run's does.

Who awaits a turn holds an update. One that is not answered is lost when the run continues as new, so all are told to
ask again ahead of that (`leave`).
"""

from typing import Any

from temporalio import workflow

from orga.workflows.agent import AgentLoop
from orga.workflows.decisions import observe
from orga.workflows.decisions.control.interventions import reopened, signal_text
from orga.workflows.decisions.recall import learning_call
from orga.workflows.decisions.roll_over import MAX_CARRIED_BYTES, weight
from orga.workflows.decisions.sessions import messages, turns
from orga.workflows.decisions.sessions.begin import first_session, opened
from orga.workflows.decisions.sessions.shown import session_result, session_status
from orga.workflows.phases.control.handlers import first_of
from orga.workflows.phases.control.pace import show_details, show_phase, show_spent, wait_if_paused, withdraw_all
from orga.workflows.phases.control.run import RollOver, event_time, wall_time
from orga.workflows.phases.knowledge import persist_learnings
from orga.workflows.phases.sessions.run import SessionRun
from orga.workflows.types.control import Stop
from orga.workflows.types.definition import define_workflow
from orga.workflows.types.record import InvalidInput, parsed
from orga.workflows.types.sessions.input import SessionInput, TurnWanted
from orga.workflows.types.sessions.result import SessionResult, SessionStatus, TurnResult
from orga.workflows.types.versions import LEARNT_BY_TURN

MAX_AWAITING = 6
"""Updates that wait for a turn at a time: the server allows ten, and messages need some. Others ask again."""

CROWDED_S = 30.0
"""After which they do: a run takes 2,000 updates, and the query `turns` tells sooner and costs nothing."""


@define_workflow("SessionWorkflow")
class SessionWorkflow(AgentLoop[SessionResult]):
    """Holds one conversation."""

    @workflow.init
    def __init__(self, *given: Any) -> None:
        """Take the input as any JSON: bad input fails the run with a clear error, and hangs nothing."""
        info, problem = workflow.info(), ""
        raw, state = (*given, None, None)[:2]
        now, origin = event_time(), info.original_execution_run_id
        try:
            first = first_session(raw, state, info.continued_run_id, origin, now)
        except InvalidInput as error:
            problem = str(error)
            first = opened(SessionInput(), origin, now)
        self._session = SessionRun(first)
        self._is_leaving = False
        self._awaiting = 0
        self._has_ended_one = False
        """Whether this run of the chain has come further: a message that waits is begun before the next one is due."""
        self.begin(self._session, problem)

    @workflow.run
    async def run(self, *given: Any) -> SessionResult:
        """Hold it until it is closed, nothing was said for too long, or it is aborted.

        Raises:
            ApplicationError: `InvalidInput`, not retryable, for input that no session can start with.
        """
        return await self.live()

    @workflow.update
    def send(self, *message: Any) -> int:
        """Say something; return the turn that it became part of."""
        self._run.heard()
        said = messages.parsed_message(first_of(message))
        self._session.converse(messages.with_sent, said)
        return self._session.talk.session.taken[said.message_id]

    @send.validator
    def _may_be_sent(self, *message: Any) -> None:
        messages.check_message(self._session.talk, messages.parsed_message(first_of(message)))

    @workflow.update
    async def await_turn(self, *wanted: Any) -> dict[str, Any]:
        """Return the `result` of a turn once it has ended; or in how many seconds to ask again, `again_in_s`."""
        self._run.heard()
        turn = parsed(TurnWanted, first_of(wanted)).turn
        if self._awaiting < MAX_AWAITING:
            self._awaiting += 1
            await workflow.wait_condition(lambda: self._is_leaving or self._has_ended(turn))
            self._awaiting -= 1
        ended = turns.result_of(self._session.talk.session, turn)
        again_in_s = 0.0 if self._is_leaving else CROWDED_S
        return {"again_in_s": again_in_s} if ended is None else {"result": ended.model_dump(mode="json")}

    @await_turn.validator
    def _will_end(self, *wanted: Any) -> None:
        turns.check_awaited(self._session.talk.session, parsed(TurnWanted, first_of(wanted)).turn)

    @workflow.update
    def interrupt(self, *why: Any) -> int:
        """Cut the turn under way; return its number."""
        self._run.heard()
        turn = self._session.talk.session.turn
        self._session.converse(messages.with_cut, signal_text(why) or "interrupted by the user")
        return turn

    @interrupt.validator
    def _is_under_way(self, *_: Any) -> None:
        messages.check_cut(self._session.talk)

    @workflow.update
    def close(self, *_: Any) -> None:
        """End the session after the turn under way."""
        self._run.heard()
        self._session.converse(messages.with_closing)

    @workflow.signal(name="close")
    def take_close(self, *_: Any) -> None:
        """End it as the update does."""
        self._run.heard()
        self._session.converse(messages.with_closing)

    @workflow.query
    def status(self) -> SessionStatus:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Where the session stands, while it goes on by the clock of the worker that is asked."""
        is_over = self._run.state.is_over
        return session_status(self._session.talk, self._run.now if is_over else wall_time())

    @workflow.query
    def turns(self) -> list[TurnResult]:
        """The results of the last turns, oldest first."""
        return list(turns.light_results(self._session.talk.session))

    async def run_until_stop(self) -> Stop:
        """Take one turn after the other until the session ends, and return how."""
        run = self._session
        while (ending := await self._begin_turn()) is None:
            stop = await self.iterate_until_stop()
            run.change(observe.with_stop, *stop)
            await run.until_nothing_runs()  # while the turn is still cut: its calls must not act in the next one
            await super().bring(stop)
            run.change(reopened)
            if run.state.stop is not None:
                await self._end_turn(stop)
        run.change(observe.drain_inbox)
        run.converse(turns.with_end)
        return ending

    async def _end_turn(self, stop: Stop) -> None:
        """End it: what it did not come to read stands ahead of the next message, what it asked is asked no more."""
        run, turn = self._session, self._session.talk.session.turn
        run.change(observe.drain_inbox)
        withdraw_all(run)
        run.converse(turns.with_turn_ended, stop, run.now)
        show_spent(run)
        self._has_ended_one = True
        await self._learn(turn)

    async def _learn(self, turn: int) -> None:
        """Store what the turn has taught: its result is there already, the next one waits."""
        run = self._session
        text = turns.unlearnt(run.talk)
        if learning_call(run.talk, text) is not None and workflow.patched(LEARNT_BY_TURN):
            run.converse(turns.with_learnt)
            await persist_learnings(run, text, turn)

    async def _begin_turn(self) -> Stop | None:
        """Begin the next turn as soon as there is a message, unless one is under way; return why the session ends."""
        run = self._session
        if run.talk.session.turn:
            return None
        run.converse(turns.idle, run.now)
        show_details(run)
        show_phase(run)
        while (ending := turns.end_between_turns(run.talk)) is None:
            if run.state.paused:
                await wait_if_paused(run, may_roll_over=True, is_over=lambda: run.talk.session.closing)
                run.converse(turns.idle_anew, run.now)
                continue
            has_message = bool(run.talk.session.queue)
            if run.is_due and (self._has_ended_one or not has_message):
                raise RollOver
            if has_message:
                run.converse(turns.with_turn_begun, run.now)
                show_phase(run)
                return None
            try:
                await run.wait_until(self._has_news, may_roll_over=True, timeout_s=turns.patience_s(run.talk, run.now))
            except TimeoutError:
                run.tick()
                return turns.out_of_patience(run.talk)
        return ending

    def _has_news(self) -> bool:
        talk = self._session.talk
        return talk.paused or bool(talk.session.queue) or turns.end_between_turns(talk) is not None

    def _has_ended(self, turn: int) -> bool:
        return self._run.state.is_over or turns.result_of(self._session.talk.session, turn) is not None

    def refuse_requeue(self) -> None:
        """Refuse it between two turns: a call belongs to a turn, its budget and who speaks in it."""
        if not self._session.talk.session.turn:
            raise ValueError("no turn is under way that could send it again; say something first")

    async def bring(self, stop: Stop) -> None:
        """Bring nothing more: each turn has brought what it had."""

    async def leave(self) -> None:
        """Let all who wait for a turn ask the next run, and carry no more of the answers than there is room for."""
        self._is_leaving = True
        await workflow.wait_condition(workflow.all_handlers_finished)
        if weight(self._run.state) > MAX_CARRIED_BYTES:
            self._session.converse(turns.with_light_results)

    async def finish(self, ended: SessionResult) -> SessionResult:
        """Store what was learnt and no end of a turn has stored, and answer all who wait."""
        run, session = self._session, self._session.talk.session
        if session.turn or not session.learns_by_turn:  # it could not go on amid a turn; or is from before
            await persist_learnings(run, turns.unlearnt(run.talk), session.turn)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return ended

    def result(self, stop: Stop) -> SessionResult:
        """Return the totals."""
        return session_result(self._session.talk, stop, self._run.now)
