"""Assertions on journals. A failing one shows what was called and denied instead."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orga.workflows.types.status import JournalEntry

SHOWN_CHARS = 200


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
        by = _rules_text(self.rules) if self.fate != "called" else ""
        why = f": {self.reason}" if self.reason and self.fate != "called" else ""
        return f"{self.iteration}: {self.tool} {_value_text(self.arguments)} was {self.fate.replace('_', ' ')}{by}{why}"


def calls_in(journal: Iterable[JournalEntry]) -> list[JournalCall]:
    """Return the calls in the journal in order, including those of delegated runs."""
    found, asked = dict[str, JournalCall](), set[str]()
    for entry in journal:
        match entry.event:
            case "ReasoningComplete":
                found.update(_proposed_calls(entry))
            case "PolicyEvaluated":
                _apply_verdicts(found, entry)
            case "ApprovalResolved":
                _apply_decision(found, entry)
            case "ToolsDispatched":
                _apply_dispatch(found, entry)
            case "QuestionAsked":
                asked.add(f"{entry.run} {entry.data.get('place')}")
            case "ObservationsCollected":
                _apply_not_started(found, entry, asked)
            case _:
                pass
    return list(found.values())


def last_refusal(journal: Iterable[JournalEntry]) -> str:
    """Return the last refused proposal (a call, an answer or a plan) with the reason, or ""."""
    proposed, last = dict[str, str](), ""
    for entry in journal:
        refusals = list[tuple[str, str, str]]()
        if entry.event == "ReasoningComplete":
            for index, action in enumerate(entry.data.get("actions", ())):
                place = f"{entry.iteration}.{index}" if "tool" in action else str(entry.iteration)
                proposed[f"{entry.run} {place}"] = _proposal(action)
        elif entry.event == "PolicyEvaluated":
            refusals = [
                (
                    place,
                    f"{_REFUSED_FATES[verdict['decision']]}{_rules_text(verdict.get('policies', ()))}",
                    verdict.get("reason", ""),
                )
                for place, verdict in _verdicts(entry)
                if verdict["decision"] in _REFUSED_FATES
            ]
        elif entry.event == "ApprovalResolved" and not entry.data.get("approved"):
            refusals = [(entry.data.get("place", ""), "denied", entry.data.get("reason", ""))]
        for place, fate, why in refusals:
            proposal = proposed.get(f"{entry.run} {place}", f"the proposal {place}".strip())
            last = f"{entry.iteration}: {proposal} was {fate}" + (f": {why}" if why else "")
    return last


def _proposal(action: Mapping[str, Any]) -> str:
    if "tool" in action:
        return f"{action['tool']} {_value_text(action.get('arguments', {}))}"
    return f"the answer {_value_text(action.get('respond', ''))}"


def assert_called(
    journal: Iterable[JournalEntry],
    tool: str,
    *,
    times: int | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> None:
    """Assert that a tool was called: the gate allowed a proposed call and it was started, however it ended.

    Args:
        journal: The journal of a run.
        tool: The name of the tool.
        times: The exact number of calls. 0 asserts that it was not called. None: at least once.
        arguments: Only calls with these arguments count. They may have others too.
    """
    made = calls_in(journal)
    fitting = [call for call in made if call.tool == tool and call.fate == "called" and _has_arguments(call, arguments)]
    if (len(fitting) == times) if times is not None else fitting:
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
    return "the model called no tools" if not made else "\n".join(("the model's calls, by iteration:", *map(str, made)))


def _has_arguments(call: JournalCall, arguments: Mapping[str, Any] | None) -> bool:
    missing = object()
    return all(call.arguments.get(name, missing) == value for name, value in (arguments or {}).items())


def _proposed_calls(entry: JournalEntry) -> Iterator[tuple[str, JournalCall]]:
    for index, action in enumerate(entry.data.get("actions", ())):
        if "tool" in action:
            known = {"call_id": action.get("call_id", "")}
            call = JournalCall(action["tool"], action.get("arguments", {}), entry.iteration, "proposed", **known)
            yield f"{entry.run} {entry.iteration}.{index}", call


_REFUSED_FATES = {"deny": "denied", "invalid": "invalid"}


def _apply_verdicts(found: dict[str, JournalCall], entry: JournalEntry) -> None:
    """Apply the gate's verdicts."""
    for place, verdict in _verdicts(entry):
        fate = {"approval": "held", **_REFUSED_FATES}.get(verdict["decision"])
        if fate is not None:
            _set_fate(
                found, f"{entry.run} {place}", fate, tuple(verdict.get("policies", ())), verdict.get("reason", "")
            )


def _verdicts(entry: JournalEntry) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the gate's verdicts with their places. If the gate failed, everything that it was asked about is denied."""
    places = entry.data.get("places") or [entry.data.get("about") or str(entry.iteration)]
    failed = {"decision": "deny", "reason": entry.data.get("error", "")}
    yield from zip(places, entry.data.get("verdicts") or [failed] * len(places), strict=False)


def _rules_text(rules: Sequence[str]) -> str:
    return f" by {', '.join(rules)}" if rules else ""


def _value_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _apply_decision(found: dict[str, JournalCall], entry: JournalEntry) -> None:
    """Apply a person's denial."""
    if entry.data.get("kind") == "call" and not entry.data.get("approved"):
        _set_fate(found, f"{entry.run} {entry.data.get('place')}", "denied", (), entry.data.get("reason", ""))


def _apply_dispatch(found: dict[str, JournalCall], entry: JournalEntry) -> None:
    for key in _call_keys(found, entry, entry.data.get("tools", ())):
        found[key] = replace(found[key], fate="called")


def _apply_not_started(found: dict[str, JournalCall], entry: JournalEntry, asked: Collection[str]) -> None:
    """Apply which calls were not started. A question that was asked did start, however it ended."""
    unrun = [outcome for outcome in entry.data.get("outcomes", ()) if outcome.get("outcome") == "not_run"]
    for key in _call_keys(found, entry, unrun):
        if key not in asked and found[key].fate != "denied":
            found[key] = replace(found[key], fate="not_run")


def _call_keys(found: Mapping[str, JournalCall], entry: JournalEntry, listed: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the keys of the calls that an entry lists. They belong to its iteration."""
    ids = {each.get("call_id") for each in listed}
    return [
        key
        for key, call in found.items()
        if call.iteration == entry.iteration and key.startswith(f"{entry.run} ") and call.call_id in ids
    ]


def _set_fate(found: dict[str, JournalCall], key: str, fate: str, rules: tuple[str, ...], reason: str) -> None:
    if key in found:
        found[key] = replace(found[key], fate=fate, rules=rules or found[key].rules, reason=reason)
