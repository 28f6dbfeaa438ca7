"""Assertions on the tool calls in a journal. A failing assertion shows all calls with what happened to them."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from orga.client.journal import event_types as on
from orga.client.journal.event_types import read_event
from orga.workflows.types.status import JournalEntry

SHOWN_CHARS = 200
"""Characters of arguments or of an answer in a message."""


@dataclass(frozen=True)
class JournalCall:
    """A tool call that a model proposed, and what happened to it."""

    tool: str
    arguments: Mapping[str, Any]
    iteration: int
    fate: str
    """`called`, `denied`, `invalid` (its arguments do not fit), `held` (for a person), `not_run` (allowed but not
    started, by a limit, an open circuit, a stopped step or a critic), or `proposed` if nothing more is recorded."""
    call_id: str = ""
    rules: tuple[str, ...] = ()
    """Ids of the policies that decided."""
    reason: str = ""

    def __str__(self) -> str:
        """Show the call as one line."""
        call = f"{self.iteration}: {self.tool} {_value_text(self.arguments)} was {self.fate.replace('_', ' ')}"
        if self.fate == "called":
            return call
        why = f": {self.reason}" if self.reason else ""
        return f"{call}{_rules_text(self.rules)}{why}"


def calls_in(journal: Iterable[JournalEntry]) -> list[JournalCall]:
    """Return the calls in the journal in order, including those of delegated runs."""
    found, asked = dict[str, JournalCall](), set[str]()
    for entry in journal:
        match read_event(entry):
            case on.ReasoningComplete() as event:
                found.update(_proposed_calls(entry, event))
            case on.PolicyEvaluated() as event:
                for place, verdict in _verdicts(entry, event):
                    _set_fate(found, f"{entry.run} {place}", verdict)
            case on.ApprovalResolved(kind="call", approved=False) as event:
                denied = on.RecordedVerdict(decision="deny", reason=event.reason)
                _set_fate(found, f"{entry.run} {event.place}", denied)
            case on.ToolsDispatched() as event:
                for key in _call_keys(found, entry, event.tools):
                    found[key] = replace(found[key], fate="called")
            case on.QuestionAsked() as event:
                asked.add(f"{entry.run} {event.place}")
            case on.ObservationsCollected() as event:
                _apply_not_started(found, entry, event, asked)
            case _:
                pass
    return list(found.values())


def last_refusal(journal: Iterable[JournalEntry]) -> str:
    """Return the last refused proposal (a call, an answer or a plan) with the reason, or ""."""
    proposals, last = dict[str, str](), ""
    for entry in journal:
        proposals.update(_proposal_texts(entry))
        for place, fate, reason in _refusals(entry):
            proposal = proposals.get(f"{entry.run} {place}", f"the proposal {place}".strip())
            why = f": {reason}" if reason else ""
            last = f"{entry.iteration}: {proposal} was {fate}{why}"
    return last


def _proposal_texts(entry: JournalEntry) -> Iterator[tuple[str, str]]:
    """Yield the calls and answers that a model proposes in this entry, each with its run and place as key."""
    event = read_event(entry)
    if not isinstance(event, on.ReasoningComplete):
        return
    for index, action in enumerate(event.actions):
        if action.tool is None:
            yield f"{entry.run} {entry.iteration}", f"the answer {_value_text(action.respond)}"
        else:
            yield f"{entry.run} {entry.iteration}.{index}", f"{action.tool} {_value_text(action.arguments)}"


class _Refusal(NamedTuple):
    place: str
    fate: str
    reason: str


def _refusals(entry: JournalEntry) -> Iterator[_Refusal]:
    match read_event(entry):
        case on.PolicyEvaluated() as event:
            for place, verdict in _verdicts(entry, event):
                if fate := _REFUSED_FATES.get(verdict.decision):
                    yield _Refusal(place, f"{fate}{_rules_text(verdict.policies)}", verdict.reason)
        case on.ApprovalResolved(approved=False) as event:
            yield _Refusal(event.place, "denied", event.reason)
        case _:
            pass


def assert_called(
    journal: Iterable[JournalEntry],
    tool: str,
    *,
    times: int | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> None:
    """Assert that a tool was called: the gate allowed a proposed call, and it was started. Its outcome does not matter.

    Args:
        journal: The journal of a run.
        tool: The name of the tool.
        times: The exact number of calls. 0 asserts that it was not called. None: at least once.
        arguments: Only calls with these arguments count. They may have other arguments, too.
    """
    made = calls_in(journal)
    fitting = [call for call in made if call.tool == tool and call.fate == "called" and _has_arguments(call, arguments)]
    is_met = bool(fitting) if times is None else len(fitting) == times
    if is_met:
        return
    wanted = "at least once" if times is None else _times_text(times)
    with_these = f" with {json.dumps(dict(arguments), ensure_ascii=False, default=str)}" if arguments else ""
    raise AssertionError(
        f"{tool} should be called {wanted}{with_these}, was called {_times_text(len(fitting))}; {_calls_text(made)}"
    )


def _times_text(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


def assert_denied(journal: Iterable[JournalEntry], tool: str, *, rule: str | None = None) -> None:
    """Assert that the gate denied a call of the tool.

    Args:
        journal: The journal of a run.
        tool: The name of the tool.
        rule: Id of the policy that decided, `@id("...")` in Cedar. None: any denial.
    """
    made = calls_in(journal)
    denied = [call for call in made if call.tool == tool and call.fate == "denied"]
    if any(rule is None or rule in call.rules for call in denied):
        return
    by = "" if rule is None else f" by {rule}"
    raise AssertionError(f"a call of {tool} should be denied{by}; {_calls_text(made)}")


def _calls_text(made: Sequence[JournalCall]) -> str:
    if not made:
        return "the model called no tools"
    return "\n".join(("the model's calls, by iteration:", *map(str, made)))


def _has_arguments(call: JournalCall, arguments: Mapping[str, Any] | None) -> bool:
    missing = object()
    return all(call.arguments.get(name, missing) == value for name, value in (arguments or {}).items())


def _proposed_calls(entry: JournalEntry, event: on.ReasoningComplete) -> Iterator[tuple[str, JournalCall]]:
    for index, action in enumerate(event.actions):
        if action.tool is not None:
            call = JournalCall(action.tool, action.arguments, entry.iteration, "proposed", action.call_id)
            yield f"{entry.run} {entry.iteration}.{index}", call


_REFUSED_FATES = {"deny": "denied", "invalid": "invalid"}
_FATES = {"approval": "held", **_REFUSED_FATES}


def _verdicts(entry: JournalEntry, event: on.PolicyEvaluated) -> Iterable[tuple[str, on.RecordedVerdict]]:
    """Return the gate's verdicts with their places. If the gate failed, it denied everything."""
    places = event.places or (event.about or str(entry.iteration),)
    failed = on.RecordedVerdict(decision="deny", reason=event.error)
    return zip(places, event.verdicts or [failed] * len(places), strict=False)


def _rules_text(rules: Sequence[str]) -> str:
    return f" by {', '.join(rules)}" if rules else ""


def _value_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _apply_not_started(
    found: dict[str, JournalCall], entry: JournalEntry, event: on.ObservationsCollected, asked: Collection[str]
) -> None:
    """Mark the calls that were not started. A call that asked a question was started, whatever its outcome is."""
    for key in _call_keys(found, entry, (call for call in event.outcomes if call.outcome == "not_run")):
        if key not in asked and found[key].fate != "denied":
            found[key] = replace(found[key], fate="not_run")


def _call_keys(found: Mapping[str, JournalCall], entry: JournalEntry, listed: Iterable[on.RecordedCall]) -> list[str]:
    """Return the keys of the calls that an entry lists. Only calls of its run and iteration are found."""
    ids = {call.call_id for call in listed}
    return [
        key
        for key, call in found.items()
        if call.iteration == entry.iteration and key.startswith(f"{entry.run} ") and call.call_id in ids
    ]


def _set_fate(found: dict[str, JournalCall], key: str, verdict: on.RecordedVerdict) -> None:
    if key in found and verdict.decision in _FATES:
        rules = verdict.policies or found[key].rules
        found[key] = replace(found[key], fate=_FATES[verdict.decision], rules=rules, reason=verdict.reason)
