"""What a run decided by itself, and what people did about it, in words: entries that need no other entry to be told."""

from collections.abc import Callable
from typing import Any, cast

from orga.client.cli.counting import counted
from orga.client.cli.held_calls import in_words
from orga.client.cli.line import Line, Tone
from orga.client.cli.narrated_goals import GOAL_TELLERS
from orga.client.cli.narrated_sessions import SESSION_TELLERS, guidance, is_told_by_turns
from orga.client.cli.terminal_text import on_one_line
from orga.workflows.types.decision import DECISION_GROUNDED
from orga.workflows.types.loop_tools import SAGA_ENDED
from orga.workflows.types.status import JournalEntry

Data = dict[str, Any]


def told_note(entry: JournalEntry) -> list[Line] | None:
    """Return the lines of an entry, or None where it is of another kind."""
    teller = _TELLERS.get(entry.event)
    return teller(entry.data) if teller else None


def _hydrated(data: Data) -> list[Line]:
    counts = [f"{data[key]} {key}" for key in ("resolved", "failed", "unresolvable") if data.get(key)]
    lines = [Line(f"looked up {counted(data.get('references_found', 0), 'reference')}: {', '.join(counts)}")]
    references: list[Data] = data.get("references", [])
    lacking = [reference for reference in references if reference.get("status") != "resolved"]
    return lines + [Line(f"✗ {_text(lack, 'value')}: {_text(lack, 'why')}", "bad") for lack in lacking]


def _compacted(data: Data) -> list[Line]:
    lines: list[str] = []
    if dropped := data.get("messages_dropped"):
        lines.append(f"{counted(dropped, 'older message')} left out of the context")
    if masked := data.get("messages_masked"):
        lines.append(f"{counted(masked, 'older result')} left out of the context")
    if replaced := data.get("messages_replaced"):
        lines.append(f"{counted(replaced, 'message')} left out: refused by a content filter of the model's provider")
    if cut := cast("list[Any]", data.get("fields_cut") or []):
        lines.append(on_one_line(f"cut to be carried on: {', '.join(map(str, cut))}", 300))
    how = {"model": ", summed up by the model", "fallback": ", their calls counted"}
    tone = "bad" if data.get("messages_replaced") else "quiet"
    return [Line(" and ".join(lines) + how.get(str(data.get("summary")), ""), tone)]


def _asked(data: Data) -> list[Line]:
    if data.get("kind") == "call":
        return [Line(f"? {_text(data, 'id')}: {in_words(data)}", "person")]
    what = f"{_text(data, 'kind')} {_text(data, 'id')}"
    return [Line(f"? waits for a person ({what}): {_text(data, 'question')}", "person")]


def _decided(data: Data) -> list[Line]:
    if data.get("kind") == "call":
        word, by = ("approved" if data.get("approved") else "denied"), data.get("approver")
        return [Line(f"{_text(data, 'tool')} {word}{_by({**data, 'by': by})} ({_text(data, 'id')})", "person")]
    if data.get("choice") == "none":
        return [Line(f"{_text(data, 'id')} waits no more", "quiet")]
    return [Line(f"{_text(data, 'id')}: {_text(data, 'choice')}{_by(data)}", "person")]


def _recovered(data: Data) -> list[Line]:
    tone: Tone = "good" if data.get("outcome") == "ok" else "plain"
    after = f", after: {_text(data, 'error')}" if data.get("error") else ""
    calls: list[Data] = data.get("calls", [])
    made = [Line(f"  ↻ {_text(call, 'tool')} instead: {_text(call, 'outcome')}") for call in calls]
    tried = f" ({data['attempts']} attempts)" if data.get("attempts") else ""
    how = f"{_text(data, 'strategy')}{tried}, {_text(data, 'outcome')}"
    return [*made, Line(f"↻ {_text(data, 'tool')}: {how}{after}", tone)]


def _stopped(data: Data) -> list[Line]:
    return [Line(f"✗ {_text(data, 'tool')} gets nowhere: {_text(data, 'reason')}", "bad")]


def _opened(data: Data) -> list[Line]:
    failures, recovery_s = data.get("failures"), data.get("recovery_s", 0)
    last = f"; last: {_text(data, 'cause')}" if data.get("cause") else ""
    told = f"✗ {_text(data, 'tool')} is left alone for {recovery_s:g} s: failures in a row: {failures}{last}"
    return [Line(told, "bad")]


def _closed(data: Data) -> list[Line]:
    return [Line(f"✓ {_text(data, 'tool')} works again", "good")]


def _intervened(data: Data) -> list[Line]:
    if data.get("kind") == "cut":
        kept = f"{data.get('kept', 0):,} of {data.get('bytes', 0):,} bytes are kept"
        return [Line(f"✗ {_text(data, 'of')} was too long and is cut: {kept}", "bad")]
    if steering := guidance(data):
        return [Line(f"steer: {on_one_line(steering)}", "person")]
    given = data.get("text", "")
    text = _pairs(cast("Data", given)) if isinstance(given, dict) else str(given)
    return [
        Line(
            f"{_text(data, 'kind')}{': ' if text else ''}{on_one_line(text)}",
            "quiet" if is_told_by_turns(data) else "person",
        )
    ]


def _saga(data: Data) -> list[Line]:
    made: list[Data] = data.get("calls", [])
    calls = ", ".join(f"{_text(call, 'tool')} {_text(call, 'outcome')}" for call in made)
    why = f": {_text(data, 'error')}" if data.get("error") else ""
    is_good = data.get("outcome") == "ok"
    return [
        Line(f"{'✓' if is_good else '✗'} saga {_text(data, 'outcome')}{why} ({calls})", "good" if is_good else "bad")
    ]


def _decided_by_rule(data: Data) -> list[Line]:
    outcome = _pairs(cast("Data", data.get("outcome", {})))
    return [
        Line(f"✓ decided {_text(data, 'decision')}: {on_one_line(outcome, 300)} (rule: {_text(data, 'rule')})", "good")
    ]


def _reviewed(data: Data) -> list[Line]:
    score = "" if data.get("score") is None else f" {data['score']:.2f}"
    why = _text(data, "error") or _text(data, "feedback")
    word = "approves" if data.get("approved") else "cannot review" if data.get("error") else "rejects"
    head = f"critic {_text(data, 'critic')} {word} {_text(data, 'target')}{score} ({_text(data, 'then')})"
    mark, tone = ("✓", "good") if data.get("approved") else ("✗", "bad")
    return [Line(f"{mark} {head}{f': {why}' if why else ''}", cast("Tone", tone))]


def _untold(data: Data) -> list[Line]:
    return [Line(f"✗ nobody could be told of {_text(data, 'about')}: {_text(data, 'error')}", "bad")]


def _handed_over(data: Data) -> list[Line]:
    return [Line(f"goes on in build {_text(data, 'build')} (before: {_text(data, 'before')})", "quiet")]


def _missing(data: Data) -> list[Line]:
    return [Line(_text(data, "detail"), "quiet")]


def _failed_over(data: Data) -> list[Line]:
    return [Line(f"⚠ {_text(data, 'from')} gives way to {_text(data, 'to')}: {_text(data, 'why')}", "bad")]


def _recalled(data: Data) -> list[Line]:
    if error := _text(data, "error"):
        return [Line(f"✗ nothing could be recalled: {error}", "bad")]
    items = cast("list[Data]", data.get("items", []))
    found = f"{counted(len(items), 'item')} (best {items[0]['score']:.2f})" if items else "nothing"
    tainted = sum(bool(item.get("tainted")) for item in items)
    untrusted = f", {tainted} of them untrusted" if tainted else ""
    kept = ", the same as before" if data.get("block") == "kept" else ""
    words = on_one_line(" ".join(map(str, data.get("terms", []))), 120)
    return [Line(f"recalled {found}{untrusted}{kept} for: {words}", "quiet")]


def _stored(data: Data) -> list[Line]:
    if error := _text(data, "error"):
        return [Line(f"✗ what was learnt could not be stored: {error}", "bad")]
    older = cast("list[str]", data.get("contradicts", []))
    against = f", against {counted(len(older), 'older fact')}" if older else ""
    return [Line(f"stored a {_text(data, 'kind')}: {_text(data, 'change')} {_text(data, 'id')}{against}", "good")]


_TELLERS: dict[str, Callable[[Data], list[Line]]] = {
    "PreHydrationComplete": _hydrated,
    "KnowledgeRecalled": _recalled,
    "KnowledgeStored": _stored,
    "ContextCompacted": _compacted,
    "ApprovalRequested": _asked,
    "ApprovalResolved": _decided,
    "RecoveryTriggered": _recovered,
    "StepLimitReached": _stopped,
    "CircuitOpened": _opened,
    "ModelFailedOver": _failed_over,
    "CircuitClosed": _closed,
    "InterventionReceived": _intervened,
    "NotificationFailed": _untold,
    SAGA_ENDED: _saga,
    DECISION_GROUNDED: _decided_by_rule,
    "CritiqueEvaluated": _reviewed,
    "PastMissing": _missing,
    "BuildChanged": _handed_over,
    **SESSION_TELLERS,
    **GOAL_TELLERS,
}


def _text(data: Data, key: str) -> str:
    return on_one_line(str(data.get(key) or ""), 300)


def _by(data: Data) -> str:
    who = f" by {_text(data, 'by')}" if data.get("by") else ""
    return f"{who}: {_text(data, 'reason')}" if data.get("reason") else who


def _pairs(given: Data) -> str:
    return ", ".join(f"{key}={value}" for key, value in given.items() if value not in (None, ""))
