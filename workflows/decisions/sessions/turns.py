"""Turns of a session: each starts with full budgets and leaves its result."""

from collections.abc import Sequence
from datetime import datetime

from pydantic_core import to_json

from orga.workflows.decisions.begin import carried_state, is_fork
from orga.workflows.decisions.conversation import fair_shares, with_message
from orga.workflows.decisions.recall import learnings_text
from orga.workflows.decisions.result import agent_result, agent_status, result_data, with_all_keys
from orga.workflows.decisions.result import agent_run_details as run_details
from orga.workflows.types.control import Clock, Stop
from orga.workflows.types.conversation import latest_turn
from orga.workflows.types.messages import Message
from orga.workflows.types.models.usage import ToolCallCounts, UsageTotals
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.sessions.session import Session, SessionState
from orga.workflows.types.sessions.session_input import SessionInput, parse_session
from orga.workflows.types.sessions.session_result import (
    TURN_ENDED,
    TURN_STARTED,
    SessionResult,
    SessionStatus,
    TurnResult,
    TurnTermination,
)
from orga.workflows.types.state import Dialogue
from orga.workflows.types.text import clip_json, json_prefix

HOUR_S = 3_600
_DAY_S = 24 * HOUR_S

_UNITS = (
    ("year", 365 * _DAY_S, 2 * 365 * _DAY_S),
    ("month", 30 * _DAY_S, 60 * _DAY_S),
    ("week", 7 * _DAY_S, 14 * _DAY_S),
    ("day", _DAY_S, _DAY_S),
    ("hour", HOUR_S, HOUR_S),
)
"""Name, seconds, and the seconds from which the unit is used."""


def elapsed_text(seconds: float) -> str:
    """Return the time in its largest fitting unit, rounded down: `3 days`. "" for less than an hour."""
    for name, unit, least in _UNITS:
        if seconds >= least:
            count = int(seconds // unit)
            return f"{count} {name}" if count == 1 else f"{count} {name}s"
    return ""


MAX_RESULTS = 20
RESULTS_BYTES = 30_000
"""Bytes of JSON of all results except the newest. If a carried state is short of room, the newest counts, too."""

SHOWN_BYTES = 1_000_000
"""Bytes of all results in one answer. The server refuses an answer of 2 MB."""

_FRAME_BYTES = 1_300
"""Bytes of a result without its answer."""

DETAIL_BYTES = 300


def with_turn_begun(state: SessionState, now: datetime) -> SessionState:
    """Begin a turn with the first waiting message and full budgets. Of the previous turn, only the messages stay."""
    session = state.session
    head, queue = session.queue[0], session.queue[1:]
    passed = "" if session.last_end is None else elapsed_text((now - session.last_end).total_seconds())
    text = f"[{passed} since your last answer] {head.text}" if passed else head.text
    opening = Message.of("user", text, begins_turn=True).with_media(head.media)
    state = state.with_task(
        input=state.input.with_task(head.text),
        hydrated=False,
        decided={},
        undecided=0,
        output="",
        data=None,
        gathered=(),
    )
    state = state.with_reply_counts_of(Dialogue()).with_dialogue(
        conversation=with_message(state.conversation, opening), partial="", last="", refused=""
    )
    state = state.with_budget(under_way=0, over_budget=0)
    state = state.with_failures(steps={}, failures={}, denials={}, invalid={})
    state = state.with_control(stop=None, clock=Clock(started_at=now), doing="reasoning")
    state = state.with_session(turn=head.turn, begun=session.begun + 1, queue=queue, is_cut=False, idle_since=None)
    attached = {"attachments": [part.line() for part in head.media]} if head.media else {}
    return state.with_clock_updated(now).with_note(TURN_STARTED, turn=head.turn, message=head.text, **attached)


def with_turn_ended(state: SessionState, stop: Stop, now: datetime) -> SessionState:
    """End the turn: keep its result and count its usage. After this, budgets are those of the next turn."""
    session, ended = state.session, turn_result(state, stop, now)
    others = _results_within(session.results[1 - MAX_RESULTS :], RESULTS_BYTES)
    state = state.with_session(
        turn=0,
        before=state.iteration,
        results=(*others, ended),
        usage=state.total_usage,
        tool_calls=state.total_calls,
        duration_s=round(session.duration_s + ended.duration_s, 3),
        is_cut=False,
        last_end=now,
        idle_since=now,
    )
    state = state.with_budget(usage=UsageTotals(), tool_calls=ToolCallCounts(), extended={})
    state = state.with_control(stop=None, doing="idle", clock=Clock(started_at=now)).with_clock_updated(now)
    data = {"iterations": ended.iterations, "usage": ended.usage.model_dump(mode="json")}
    termination = ended.termination
    return state.with_note(TURN_ENDED, turn=ended.turn, reason=termination.reason, detail=termination.detail, **data)


def turn_result(state: SessionState, stop: Stop, now: datetime) -> TurnResult:
    session = state.session
    ended_as = "interrupted" if session.is_cut else stop.reason
    return TurnResult(
        turn=session.turn,
        output=state.output,
        data=result_data(state),
        termination=TurnTermination(reason=ended_as, detail=clip_json(stop.detail, DETAIL_BYTES)),
        iterations=state.counted_iterations,
        usage=state.usage,
        tool_calls=state.tool_calls,
        duration_s=round(state.clock.elapsed_seconds(now), 3),
    )


def unstored_learnings(state: SessionState) -> str:
    """Return the learnings of the latest turn. Those of each earlier turn were stored at its end."""
    return learnings_text(state, latest_turn(state.conversation.messages).start)


def with_idle_clock(state: SessionState, now: datetime) -> SessionState:
    """Return the state that waits for a message, with its clock stopped."""
    if state.session.idle_since is not None:
        return state
    return state.with_control(doing="idle").with_session(idle_since=now).with_clock_updated(now)


def with_idle_clock_restarted(state: SessionState, now: datetime) -> SessionState:
    """Return the state after a pause, which does not count as time without a message."""
    return state.with_session(idle_since=now).with_clock_updated(now)


def stop_between_turns(state: SessionState) -> Stop | None:
    if state.aborted is not None:
        return Stop("aborted", state.aborted)
    if state.stop is not None:
        return state.stop
    return Stop("completed", "closed") if state.session.closing else None


def idle_timeout_stop(state: SessionState) -> Stop:
    return Stop("completed", f"no message came for {state.idle_timeout_s:g} s")


def idle_seconds_left(state: SessionState, now: datetime) -> float | None:
    """Return the seconds left to wait for a message. None means for ever."""
    if state.idle_timeout_s is None:
        return None
    since = state.session.idle_since or now
    return max(state.idle_timeout_s - (now - since).total_seconds(), 0.001)


NOT_BEGUN = "the session ended before this turn began"


def with_session_end(state: SessionState) -> SessionState:
    """Return the state of a session that ends. Waiting messages get results of turns that did not begin."""
    session = state.session
    unbegun = tuple(
        TurnResult(
            turn=each.turn,
            output="",
            termination=TurnTermination(reason="aborted", detail=NOT_BEGUN),
            iterations=0,
            usage=UsageTotals(),
            tool_calls=ToolCallCounts(),
            duration_s=0.0,
        )
        for each in session.queue
    )
    state = state.with_session(queue=(), results=(*session.results, *unbegun))
    return state.with_control(inbox=(), inbox_bytes=0, unheard=0)


def find_turn_result(session: Session, turn: int) -> TurnResult | None:
    return next((each for each in session.results if each.turn == turn), None)


class TurnUnknown(ValueError):
    """There is no result of this turn, and there will be none."""


def check_awaited_turn(session: Session, turn: int) -> None:
    """Raise TurnUnknown if no message became this turn, or if it is too long ago."""
    is_pending = session.turn == turn or any(each.turn == turn for each in session.queue)
    if is_pending or find_turn_result(session, turn) is not None:
        return
    if turn > session.accepted:
        raise TurnUnknown(f"no message became turn {turn}; the last is {session.accepted}")
    raise TurnUnknown(f"turn {turn} is too long ago: only {MAX_RESULTS} results are kept; see the conversation")


def results_within_limit(session: Session) -> tuple[TurnResult, ...]:
    return _results_within(session.results, SHOWN_BYTES)


def with_bounded_results(state: SessionState) -> SessionState:
    """Return the state with all results within their share. The conversation has the full texts."""
    return state.with_session(results=_results_within(state.session.results, RESULTS_BYTES))


def _results_within(results: tuple[TurnResult, ...], room: int) -> tuple[TurnResult, ...]:
    sizes = list(map(_answer_bytes, results))
    shares = fair_shares(sizes, max(room - _FRAME_BYTES * len(results), 0))
    return tuple(
        each if size <= share else _with_cut_answer(each, share)
        for each, size, share in zip(results, sizes, shares, strict=True)
    )


def _answer_bytes(result: TurnResult) -> int:
    data_bytes = 0 if result.data is None else len(to_json(result.data, inf_nan_mode="strings"))
    return len(to_json(result.output)) + data_bytes


def _with_cut_answer(result: TurnResult, room: int) -> TurnResult:
    return result.with_output(json_prefix(clip_json(result.output, room, "the conversation has all of it"), room), None)


def initial_session_state(given: SessionInput, origin: str, now: datetime) -> SessionState:
    """Return the state of a session without messages. Its clock is stopped."""
    clock = Clock(started_at=now).with_stopped_at(now)
    state = SessionState(input=given.for_agent(), origin=origin, clock=clock)
    return state if given.idle_timeout_s is None else state.with_idle_timeout(given.idle_timeout_s)


def first_session(raw: object, given: object, before: str | None, origin: str, now: datetime) -> SessionState:
    """Return the state to start from. A `given` state counts only if the run `before` carried it over."""
    if given is not None and before:
        return carried_state(SessionState, given, before)
    if is_fork(raw):
        raise InvalidInput("fork: a session cannot be a fork; fork a run of an agent, or start a session")
    return initial_session_state(parse_session(raw), origin, now)


def session_details(state: SessionState, waits: Sequence[str] = ()) -> str:
    """Return the current details of a session in Markdown: those of an agent's run, and its turns."""
    session = state.session
    lines = [f"- turn: {session.turn or 'none'} of {session.accepted}"]
    if session.queue:
        lines.append(f"- messages that wait: {len(session.queue)}")
    return "\n".join([run_details(state, waits), *lines])


def session_result(state: SessionState, stop: Stop, now: datetime) -> SessionResult:
    session = state.session
    own = {
        "usage": state.total_usage,
        "tool_calls": state.total_calls,
        "duration_s": session.duration_s,
        "turns": session.begun,
        "latest": session.results,
    }
    return with_all_keys(SessionResult.model_validate({**dict(agent_result(state, stop, now)), **own}))


def session_status(state: SessionState, now: datetime) -> SessionStatus:
    session = state.session
    own = {
        "usage": state.total_usage,
        "tool_calls": state.total_calls,
        "turn": session.turn,
        "turns": session.accepted,
        "queued": len(session.queue),
        "turn_usage": state.usage,
        "closing": session.closing,
    }
    return with_all_keys(SessionStatus.model_validate({**dict(agent_status(state, now)), **own}))
