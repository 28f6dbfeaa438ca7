"""Interventions and limits of any run: guidance, pause, abort, rewind, its time, and the length of its history.

A signal is recorded when it arrives. The workflow applies it later, in order.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from orga.workflows.types.control import MAX_SENDER_CHARS, Control, Intervention, InterventionKind, Rewind, Stop
from orga.workflows.types.json_text import as_object
from orga.workflows.types.text import clean_text, clip, delimited_text, one_line

S = TypeVar("S", bound=Control)

MAX_SIGNAL_BYTES = 50_000
"""Bytes. A longer text is cut: guidance should be a sentence, and documents belong in files."""

MAX_INBOX_BYTES = 100_000
"""Bytes of all waiting guidance, which has to fit into one payload. Beyond it, texts are cut to `MIN_SIGNAL_BYTES`."""

MAX_INBOX_ITEMS = 400
"""The most guidance that may wait. Further guidance is only counted, and the model learns how much was lost."""

MIN_SIGNAL_BYTES = 200
"""Bytes of guidance that are kept even if the inbox has no room."""

_CONTROLS = [chr(code) for code in range(32) if chr(code) not in "\n\r\t"]
"""Control characters take six times their room in a payload and could command a terminal."""


def signal_text(arguments: tuple[object, ...]) -> str:
    return _signal_text_of(_joined_text(arguments))


_KINDS_WITH_TEXT: frozenset[InterventionKind] = frozenset({"steer", "add_context", "abort"})

_BARE_PAUSE, _BARE_RESUME = Intervention(kind="pause"), Intervention(kind="resume")

_ID = re.compile(r"[!-~]{1,64}")

MAX_KEPT_IDS = 100
"""Ids that are kept to recognise a repeated intervention. A sender repeats one soon or never."""

MAX_KEPT_PAUSES = 3
"""Pauses that are kept until they hold up the run."""

MAX_IDENTIFIED = 20
"""The most guidance with an id or a sender that may wait. It all has to fit into one payload."""


def sender_of(given: object) -> dict[str, str]:
    """Return an intervention's `id`, at most 64 printable ASCII characters, and `by`, a name, if they are valid."""
    fields = as_object(given)
    sender: dict[str, str] = {}
    if isinstance(sent_id := fields.get("id"), str) and _ID.fullmatch(sent_id):
        sender["id"] = sent_id
    if isinstance(by := fields.get("by"), str) and (name := one_line(clean_text(by), MAX_SENDER_CHARS)):
        sender["by"] = name
    return sender


def split_sender(given: object) -> tuple[object, dict[str, str]]:
    """Return the text of an intervention and its sender. Only an object of `id`, `by` and `text` names a sender.

    Any other JSON is itself the text, because a handler that refused it would lose it.
    """
    fields, sender = as_object(given), sender_of(given)
    if not sender or sender.keys() != fields.keys() - {"text"}:
        return given, {}
    return fields.get("text"), sender


def split_decision(given: object) -> tuple[object, dict[str, str]]:
    """Return a decision without the `id` that only a signal has, as its update takes it. Also return its sender."""
    fields = as_object(given)
    if not fields:
        return given, {}
    sender = sender_of({"by": fields.get("approver"), **fields})
    return {key: value for key, value in fields.items() if key != "id"}, sender


def intervention(kind: InterventionKind, arguments: tuple[object, ...]) -> Intervention:
    """Return a signal as an intervention, its text cut if it is too long. A pause and a resume have no text."""
    first, sender = split_sender(arguments[0] if arguments else None)
    sent = Intervention(kind=kind, id=sender.get("id", ""), by=sender.get("by", ""))
    if kind not in _KINDS_WITH_TEXT:
        return sent
    whole = _joined_text((first, *arguments[1:]))
    size = len(whole.encode())
    return sent.with_cut(_signal_text_of(whole), size if size > MAX_SIGNAL_BYTES else 0)


def guidance(kind: InterventionKind, text: str | None) -> Intervention:
    return intervention(kind, (text,))


def signal_argument(sent: Intervention) -> str | dict[str, str]:
    return {**sent.sender, "text": sent.text} if sent.sender else sent.text


def with_intervention_id(state: S, sent: Intervention) -> S:
    return state.with_control(intervention_ids=(*state.intervention_ids, sent.key)[-MAX_KEPT_IDS:])


def with_applied(state: S, sent: Intervention, *, phase: str = "", iteration: int | None = None) -> S:
    """Add a note that an intervention takes effect, by default in the current phase and iteration.

    An intervention without an id adds nothing to the history.
    """
    if not sent.id:
        return state
    when = {"phase": phase or state.doing, "iteration": state.iteration if iteration is None else iteration}
    return state.with_note("InterventionApplied", kind=sent.kind, **sent.sender, **when)


def with_refused_signal(state: S, name: str, why: str, **sender: str) -> S:
    """Add a note that a signal was refused, because its sender gets no reply."""
    return state.with_note("InterventionRefused", kind=name, **sender, reason=why)


def _with_no_effect(state: S, sent: Intervention, why: str) -> S:
    """Add a note that an intervention has no effect, if its sender can find it by its id."""
    return with_refused_signal(state, sent.kind, why, **sent.sender) if sent.id else state


def _joined_text(arguments: tuple[object, ...]) -> str:
    """Return the text. Any JSON is accepted, because a handler that refuses it would lose it."""
    return clean_text("\n".join(_argument_text(argument) for argument in arguments if argument is not None))


def _signal_text_of(whole: str) -> str:
    """Return the text, cut and without control characters. It is cut first: one task may read 20 MB of signals."""
    text = _clipped_text(whole, MAX_SIGNAL_BYTES)
    for control in _CONTROLS:  # `translate` takes 50 times as long
        text = text.replace(control, " ")
    return text


def _argument_text(argument: object) -> str:
    if isinstance(argument, str):
        return argument
    return to_json(argument, fallback=str, inf_nan_mode="strings", bytes_mode="base64").decode()


def _clipped_text(text: str, max_bytes: int) -> str:
    return clip(text, max_bytes, "signals are cut; put documents into files")


def with_guidance(state: S, guidance: Intervention) -> S:
    """Add guidance to the end of the inbox. The journal records a cut. If the inbox is full, only count it as lost."""
    if len(state.inbox) >= MAX_INBOX_ITEMS:
        lost = state.with_control(unheard=state.unheard + 1)
        why = f"{MAX_INBOX_ITEMS} interventions wait already; send it again with another id"
        return _with_no_effect(lost, guidance, why)
    if guidance.sender and sum(bool(item.sender) for item in state.inbox) >= MAX_IDENTIFIED:
        why = f"{MAX_IDENTIFIED} interventions with an id or a sender wait already; send it again with another id"
        return with_refused_signal(state, guidance.kind, why, **guidance.sender)
    room = max(MAX_INBOX_BYTES - state.inbox_bytes, MIN_SIGNAL_BYTES)
    kept = guidance.with_shorter_text(_clipped_text(guidance.text, room))
    kept_bytes = len(kept.text.encode())
    state = state.with_control(inbox=(*state.inbox, kept), inbox_bytes=state.inbox_bytes + kept_bytes)
    if not kept.size:
        return state
    cut = {**kept.sender, "of": kept.kind, "bytes": kept.size, "kept": kept_bytes}
    return state.with_note("InterventionReceived", kind="cut", **cut)


def within_inbox(items: tuple[Intervention, ...]) -> tuple[tuple[Intervention, ...], int]:
    """Return the guidance that fits into one inbox, in order, and the number of lost items. The journal has all."""
    inbox, size = list[Intervention](), 0
    for item in items[:MAX_INBOX_ITEMS]:
        kept = item.with_shorter_text(_clipped_text(item.text, max(MAX_INBOX_BYTES - size, MIN_SIGNAL_BYTES)))
        inbox.append(kept)
        size += len(kept.text.encode())
    return tuple(inbox), max(len(items) - MAX_INBOX_ITEMS, 0)


def with_pause(state: S, now: datetime, pause: Intervention = _BARE_PAUSE) -> S:
    """Stop the clock if it is running. The pause counts as applied once it holds up the run, or when it ends."""
    if state.is_standing:
        state = with_applied(state, pause)
    elif pause.id:
        state = state.with_control(pauses=(*state.pauses, pause)[-MAX_KEPT_PAUSES:])
    return state if state.paused else state.with_control(paused=True).with_clock_updated(now)


def with_pauses_applied(state: S) -> S:
    """Return the state of a run that a pause holds up from now on."""
    for pause in state.pauses:
        state = with_applied(state, pause)
    return state.with_control(pauses=(), is_standing=True)


def with_resume(state: S, now: datetime, resume: Intervention = _BARE_RESUME) -> S:
    """Restart the clock. A resume without a pause changes nothing."""
    if not state.paused:
        return _with_no_effect(state, resume, "the run is not paused")
    for sent in (*state.pauses, resume):  # a pause that has not held up the run has still stopped the clock
        state = with_applied(state, sent)
    return state.with_control(pauses=(), paused=False).with_clock_updated(now)


def with_abort(state: S, why: str) -> S:
    """Record the abort. The first reason is kept."""
    if state.aborted is not None:
        return state
    return state.with_control(aborted=why or "aborted by the operator")


def with_sent_abort(state: S, abort: Intervention) -> S:
    """Record an abort by a signal. It takes effect at once."""
    if state.aborted is not None:
        return _with_no_effect(state, abort, "the run is being aborted already")
    return with_applied(with_abort(state, abort.text), abort)


def with_rest_refused(state: S) -> S:
    """Add a note for each intervention with an id that has not taken effect by the end of the run."""
    waiting = [sent for sent in (*state.pauses, *state.inbox) if sent.id]
    if not waiting:
        return state
    for sent in waiting:
        state = _with_no_effect(state, sent, "the run ended first")
    inbox = tuple(item.without_sender() if item.id else item for item in state.inbox)
    return state.with_control(pauses=(), inbox=inbox)


def with_run_over(state: S) -> S:
    """Return the state of a run that is ending. From here on nobody decides anything."""
    return state.with_control(is_over=True)


def with_reopened_end(state: S) -> S:
    """Return the state that continues if guidance arrived after the answer, while the end was being notified."""
    is_answered = state.stop is not None and state.stop.reason == "completed"
    may_go_on = is_answered and state.aborted is None and bool(state.inbox)
    return state.with_control(stop=None, is_over=False) if may_go_on else state


def remaining_s(state: Control, now: datetime) -> float:
    return max(state.timeout_s - state.clock.elapsed_seconds(now), 0.0)


def with_end_by_timeout(state: S) -> S:
    return state.with_control(stop=Stop("timeout", f"limit of {state.timeout_s:g} s"))


def should_continue_as_new(state: Control, events: int, history_bytes: int, suggested: bool) -> bool:
    if state.stop is not None or state.aborted is not None or state.work_elsewhere_text:
        return False
    terms = state.terms
    return suggested or events >= terms.roll_over_events or history_bytes >= terms.roll_over_bytes


def is_history_full(state: Control, events: int, history_bytes: int) -> bool:
    """Return True if the history is so long that the server will soon terminate the run without a result."""
    terms = state.terms
    return events >= terms.full_events or history_bytes >= terms.full_bytes


def with_end_at_full_history(state: S, events: int, history_bytes: int) -> S:
    """End a run that could not continue as new in time: it was always waiting, or its state is too large."""
    if state.stop is not None:
        return state
    has_waited = state.work_elsewhere_text or state.questions or state.paused
    why = state.not_continued_reason if has_waited else "its state was too large to be carried on"
    detail = f"the history is full ({events} events, {history_bytes} bytes), and the run could not continue as new"
    return state.with_control(stop=Stop("error", f"{detail}, since {why}"))


def parse_rewind(raw: object) -> Rewind | None:
    try:
        return Rewind.model_validate(raw)
    except ValidationError:
        return None


def with_rewind(state: S, rewind: Rewind, since: datetime, now: datetime) -> S:
    """Return the state after a rewind: time since the boundary does not count, and no ending is decided.

    The server delivers earlier signals again. An abort among them is removed, because it would end the run again.

    Args:
        state: State after all signals that the server delivered again.
        rewind: Its boundary is limited to possible times.
        since: The time of the last event that the reset kept. The boundary cannot be earlier.
        now: The time of the first task after the reset.
    """
    boundary = min(max(rewind.boundary_at, since), now)
    until = state.clock.stopped_at or now
    left_out_s = max((until - boundary).total_seconds(), 0.0)
    return state.with_control(clock=state.clock.without_seconds(left_out_s), aborted=None, stop=None, is_over=False)


def with_rewind_guidance(state: S, rewind: Rewind) -> S:
    if rewind.left:
        state = with_guidance(state, Intervention(kind="add_context", text=forgotten_calls_text(rewind.left)))
    steer = guidance("steer", rewind.steer)
    return with_guidance(state, steer) if steer.text.strip() else state


def forgotten_calls_text(left: Sequence[str]) -> str:
    """Return the text for the model about calls that it does not remember. Their arguments are data."""
    lines = delimited_text("\n".join(left), "calls that were carried out")
    return f"This run was set back. It had carried out these calls already, and nothing undoes them:\n{lines}"
