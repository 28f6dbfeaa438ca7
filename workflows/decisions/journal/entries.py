"""Entries of a journal: its start, the data of each event, and the hash chain."""

from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import to_json

from orga.workflows.decisions.begin import is_fork
from orga.workflows.decisions.control.interventions import sender_of, split_decision, split_sender
from orga.workflows.types import names
from orga.workflows.types.context import record_digest, short_digest, text_digest
from orga.workflows.types.json_text import as_object
from orga.workflows.types.messages import Reply
from orga.workflows.types.past import ForkedFrom
from orga.workflows.types.recall import (
    STORE_KNOWLEDGE,
    RecalledContext,
    RecalledRef,
    StoredRef,
    knowledge_report_in,
    recall_id,
)
from orga.workflows.types.setup import Setup
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import Happening, JournalEntry
from orga.workflows.types.tool_calls.gate import LEARNINGS

GENESIS_HASH = ""


def entry_hash(previous: str, entry: JournalEntry) -> str:
    """Return the hash of an entry: sha256 over the previous hash and every field of its own."""
    return sha256(previous.encode() + _canonical_body(entry)).hexdigest()


def canonical_line(entry: JournalEntry) -> bytes:
    """Return an entry's line in an export: the hashed text, with the hash added as its last field."""
    return _canonical_body(entry)[:-1] + b',"hash":"' + entry.hash.encode() + b'"}'


def _canonical_body(entry: JournalEntry) -> bytes:
    """Return the canonical form: the fields in their order, no spaces, UTF-8."""
    return to_json(entry.model_dump(mode="json", exclude={"hash"}))


def first_break(entries: Iterable[JournalEntry]) -> int | None:
    """Return the sequence of the first entry whose hash or number does not match the chain, or None."""
    previous = GENESIS_HASH
    for expected, entry in enumerate(entries):
        previous = entry_hash(previous, entry)
        if entry.hash != previous or entry.sequence != expected:
            return entry.sequence
    return None


STEERING_SIGNALS = frozenset({"steer", "add_context", "pause", "resume", "abort"})

_SIGNALS_WITH_SENDER = STEERING_SIGNALS | {"close"}
"""Signals whose argument may be an object with an id and the sender's name."""

_UPDATES_WITH_SENDER = frozenset({"extend_budget", "requeue", "complete_tool_call", "send", "interrupt", "close"})
"""Updates whose argument may have the sender's name in `by`. The arguments of the others are recorded as they are."""

DECISION_SIGNALS = frozenset(
    {"answer", "approve", "deny", "resolve_escalation", "extend_budget", "requeue", "complete_tool_call"}
)
"""Signals that do the same as the update with their name. Their argument may also have the sender's own id."""

SIGNALS = STEERING_SIGNALS | DECISION_SIGNALS

GOAL_SIGNALS = SIGNALS | {"override_step"}

SESSION_SIGNALS = SIGNALS | {"send", "interrupt", "close"}

KNOWN_SIGNALS = {names.GOAL_WORKFLOW: GOAL_SIGNALS, names.SESSION_WORKFLOW: SESSION_SIGNALS}
"""The signals of each kind of run. Other kinds know `SIGNALS`."""

WAITING_UPDATES = frozenset({"await_turn"})

Event = tuple[str, dict[str, Any]]
"""The name of an entry's event, and its data."""

EventList = list[Event]


def usage_data(reply: Reply) -> dict[str, Any]:
    cost = {} if reply.cost_usd is None else {"cost_usd": reply.cost_usd}
    return {"usage": reply.usage.model_dump(), **cost}


def failover_events(reply: Reply) -> EventList:
    return [("ModelFailedOver", each.describe()) for each in reply.failed_over]


def intervention_events(happening: Happening, known: Collection[str] = SIGNALS) -> EventList:
    """Return the events for a signal or an update. `known` are the signals that the run handles."""
    name, value = happening.name, happening.value[0] if happening.value else None
    if happening.kind != "updated":
        return [("InterventionReceived", _signal_data(happening, value, known))]
    return [] if name in WAITING_UPDATES else [("InterventionReceived", {"kind": name, **_update_data(name, value)})]


def _signal_data(happening: Happening, value: object, known: Collection[str]) -> dict[str, Any]:
    name = happening.name
    if name == "rewound":
        data = {"refused": happening.text} if happening.text else _rewind_data(as_object(value))
        return {"kind": "rewind", **data}
    if name not in known:
        return {"kind": name, "known": False}
    is_decision_with_id = name in DECISION_SIGNALS and "id" in as_object(value)
    if name in _SIGNALS_WITH_SENDER:
        text, sender = split_sender(value)
    elif name in _UPDATES_WITH_SENDER:
        decision, sender = split_decision(value)
        return {"kind": name, **_update_data(name, decision), **sender}
    elif name == "override_step" or is_decision_with_id:
        text, sender = value, sender_of(value)
    else:
        text, sender = value, {}
    return {"kind": name, **({} if text is None else {"text": text}), **sender}


def _rewind_data(rewind: dict[str, Any]) -> dict[str, Any]:
    steer = {"text": rewind["steer"]} if rewind.get("steer") else {}
    left = {"left": rewind["left"]} if rewind.get("left") else {}
    return {"to_iteration": rewind.get("to_iteration"), **steer, **left, **sender_of(rewind)}


def _update_data(name: str, value: object) -> dict[str, Any]:
    """Return the data of an update: its argument as `text`, and the sender's name next to it."""
    given = as_object(value)
    if name not in _UPDATES_WITH_SENDER or "by" not in given:
        return {} if value is None else {"text": value}
    left_out = {"by", "result", "result_json"} if name == "complete_tool_call" else {"by"}  # its outcome has the result
    rest = {key: each for key, each in given.items() if key not in left_out}
    text = rest.get("letter_id") if name == "requeue" else rest
    return {**({"text": text} if text else {}), **sender_of({"by": given["by"]})}


def termination_data(happening: Happening) -> dict[str, Any]:
    if happening.kind == "workflow_completed":
        result = as_object(happening.value)
        keys = ("iterations", "usage", "tool_calls", "duration_s", "conversation_digest")
        return {**as_object(result.get("termination")), **{key: result.get(key) for key in keys}}
    reasons = {
        "workflow_failed": "error",
        "workflow_cancelled": "aborted",
        "workflow_terminated": "aborted",
        "workflow_timed_out": "timeout",
    }
    detail = happening.text or happening.kind.removeprefix("workflow_")
    return {"reason": reasons.get(happening.kind, "error"), "detail": detail}


class JournalStart:
    """Makes the `Started` entry once. A fork gets it after its past is read, because the past may have the task."""

    def __init__(self) -> None:
        self.agent = ""
        """The agent of the run, as soon as it is known."""
        self._awaiting: dict[str, Any] | None = None

    @property
    def is_due(self) -> bool:
        """True if a fork has not read its past. If another event comes first, the start is made without the past."""
        return self._awaiting is not None

    def start_events(self, given: dict[str, Any]) -> EventList:
        if is_fork(given):
            self._awaiting = given
            return []
        return self._run_started_events(given)

    def fork_events(self, past: AgentState) -> EventList:
        """Return the start of a fork from its past, unless it was returned already."""
        if self._awaiting is None:
            return []
        source = past.forked_from.model_dump() if past.forked_from else {}
        asked = self._awaiting.get("task")  # of an agent it is the new task, of a goal it is only guidance
        guidance = {"guidance": asked} if asked and asked != past.input.task else {}
        return self._run_started_events(
            past.input.model_dump(mode="json", exclude_unset=True), forked_from=source, **guidance
        )

    def unread_start_events(self) -> EventList:
        given = self._awaiting or {}
        fork = as_object(given.get("fork"))
        return self._run_started_events(given, forked_from={key: fork.get(key) for key in ForkedFrom.model_fields})

    def _run_started_events(self, given: dict[str, Any], **forked: Any) -> EventList:
        self.agent, self._awaiting = str(given.get("agent") or "default"), None
        rest = {key: value for key, value in given.items() if key not in {"task", "goal", "fork"}}
        if isinstance(messages := rest.get("messages"), list):
            rest["messages"] = len(cast("list[Any]", messages))
        task = str(given.get("task") or given.get("goal") or "")
        return [("Started", {"task": task, "input": rest, **forked})]


def setup_data(setup: Setup) -> dict[str, Any]:
    """Return the setup's data: all in full, except instructions and tool definitions, which are digests."""
    optional = {
        "policy_version": setup.policy_version,
        "build": setup.build,
        "loop_version": setup.loop_version,
        "settings_version": setup.settings_version,
    }
    return {
        "model": setup.model,
        "instructions": short_digest(text_digest(setup.instructions)),
        "tools": {spec.name: short_digest(record_digest(spec)) for spec in setup.tools},
        "config": setup.config.model_dump(mode="json", exclude_none=True),
        "policy": setup.policy,
        **{key: value for key, value in optional.items() if value},
        **({"tiers": {what: tier.model_dump() for what, tier in setup.tiers.items()}} if setup.tiers else {}),
        **({"prompts": {"digest": setup.prompts.digest, "own": sorted(setup.prompts.texts)}} if setup.prompts else {}),
    }


MAX_DIGITS = 9


def recall_data(happening: Happening) -> dict[str, Any]:
    """Return the recalled items before a reasoning step, and the state of the block."""
    if happening.kind != "finished":
        return {"terms": [], "items": [], "error": happening.text, "block": "none"}
    recalled = RecalledContext.model_validate(happening.value)
    new_block = "injected" if recalled.text else "none"
    block = "kept" if recalled.same else new_block
    items = _recalled_items_data(recalled.items)
    data: dict[str, Any] = {"terms": list(recalled.terms), "items": items, "block": block}
    optional = {"taint": list(recalled.taint), "error": recalled.error}
    return data | {key: value for key, value in optional.items() if value}


def recall_iteration(activity_id: str) -> int:
    """Return the iteration of the recall's reasoning step, or 0 for another activity's id."""
    iteration = activity_id.removesuffix(recall_id("")) if activity_id.endswith(recall_id("")) else ""
    return int(iteration) if iteration.isdecimal() and len(iteration) <= MAX_DIGITS else 0


def knowledge_events(happening: Happening) -> EventList:
    """Return the events for a call of a knowledge tool: recalled or stored items, or failed learnings."""
    if happening.kind != "finished":
        is_learning = happening.key == LEARNINGS
        return [("KnowledgeStored", {"place": LEARNINGS, "error": happening.text})] if is_learning else []
    try:
        report = knowledge_report_in(happening.name, happening.value)
    except ValidationError:
        return []
    if happening.name != STORE_KNOWLEDGE:
        data = {"place": happening.key, "terms": list(report.terms), "items": _recalled_items_data(report.items)}
        return [("KnowledgeRecalled", {**data, **({"taint": list(report.taint)} if report.taint else {})})]
    stored = () if report.stored is None else (report.stored, *report.evidence)
    return [("KnowledgeStored", {"place": happening.key, **_stored_data(each)}) for each in stored]


def _recalled_items_data(items: tuple[RecalledRef, ...]) -> list[dict[str, Any]]:
    return [{"id": each.id, "score": each.score, **({"tainted": True} if each.tainted else {})} for each in items]


def _stored_data(stored: StoredRef) -> dict[str, Any]:
    data = {"id": stored.id, "kind": stored.kind, "change": stored.change}
    return {**data, **({"contradicts": list(stored.contradicts)} if stored.contradicts else {})}
