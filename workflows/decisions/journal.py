"""The journal of a run, folded from its history: never a second log."""

from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import Any, cast

from pydantic_core import to_json

from workflows.types.context import ReasonRequest, Setup
from workflows.types.gate import Verdicts
from workflows.types.history import Happening
from workflows.types.journal import JournalEntry
from workflows.types.messages import Reply
from workflows.types.state import AgentState

INTERVENTIONS = frozenset({"steer", "add_context", "pause", "resume", "abort"})
GENESIS = ""


class JournalFold:
    """Takes in one event after the other and returns the entries that it brings."""

    def __init__(self) -> None:
        self._agent = ""
        self._iteration = 0
        self._sequence = 0
        self._hash = GENESIS
        self._run = _Iteration()

    def feed(self, happening: Happening) -> list[JournalEntry]:
        """Return the entries that this event brings, in order."""
        found = self._events(happening)
        return [self._entry(happening.at, event, data) for event, data in found]

    def _events(self, happening: Happening) -> list[tuple[str, dict[str, Any]]]:
        match happening.kind:
            case "started":
                return self._start(happening)
            case "signaled":
                return _intervention(happening)
            case "scheduled":
                return self._scheduled(happening)
            case "finished" | "failed" | "cancelled":
                return self._ended(happening)
            case "continued_as_new":
                return []
            case _:
                return [*self._unfinished(), ("Terminated", _termination(happening))]

    def _start(self, happening: Happening) -> list[tuple[str, dict[str, Any]]]:
        arguments: list[Any] = happening.value or []
        if len(arguments) > 1 and arguments[1] is not None:
            state = AgentState.model_validate(arguments[1])
            self._iteration = state.iteration
            self._run = _Iteration()
            if state.setup is not None:
                self._agent = state.setup.agent
            return []
        given = _object(arguments[0] if arguments else None)
        self._agent = str(given.get("agent", "default"))
        return [
            ("Started", {"task": str(given.get("task", "")), "input": {k: v for k, v in given.items() if k != "task"}})
        ]

    def _scheduled(self, happening: Happening) -> list[tuple[str, dict[str, Any]]]:
        if happening.name == "prepare":
            return []
        if happening.name == "reason":
            request = ReasonRequest.model_validate(happening.value)
            self._iteration = request.iteration
            self._run = _Iteration()
            if not request.context.drop:
                return []
            dropped = sum(stop - start for start, stop in request.context.drop)
            return [("ContextCompacted", {"strategy": "sliding_window", "messages_dropped": dropped})]
        return []

    def _ended(self, happening: Happening) -> list[tuple[str, dict[str, Any]]]:
        match happening.name:
            case "prepare":
                return self._prepared(happening)
            case "reason":
                return self._reasoned(happening)
            case "gate":
                return self._gated(happening)
            case _:
                return self._acted(happening)

    def _prepared(self, happening: Happening) -> list[tuple[str, dict[str, Any]]]:
        if happening.kind == "finished":
            self._agent = Setup.model_validate(happening.value).agent
        return []

    def _reasoned(self, happening: Happening) -> list[tuple[str, dict[str, Any]]]:
        if happening.kind != "finished":
            return []
        reply = Reply.model_validate(happening.value)
        self._run.reply = reply
        actions: list[dict[str, Any]] = [
            {"tool": call.name, "call_id": call.call_id, "arguments": call.arguments} for call in reply.calls
        ]
        if not actions:
            actions = [{"respond": reply.text}]
        usage = reply.usage.model_dump()
        return [("ReasoningComplete", {"actions": actions, "finish": reply.finish, "usage": usage})]

    def _gated(self, happening: Happening) -> list[tuple[str, dict[str, Any]]]:
        if happening.kind != "finished":
            return [("PolicyEvaluated", {"error": happening.text, "action_count": self._run.proposals})]
        verdicts = Verdicts.model_validate(happening.value).verdicts
        self._run.expected = {
            f"{self._iteration}.{index}"
            for index, verdict in enumerate(verdicts)
            if verdict.decision == "allow" and self._run.reply.calls
        }
        shown = [v.model_dump(exclude_defaults=True) for v in verdicts]
        denied = sum(v.decision != "allow" for v in verdicts)
        judged = {"action_count": len(verdicts), "denied_count": denied, "verdicts": shown}
        tools = [self._run.call(key) for key in sorted(self._run.expected, key=_index)]
        dispatched: list[tuple[str, dict[str, Any]]] = [
            ("PolicyEvaluated", judged),
            ("ToolsDispatched", {"tool_count": len(tools), "tools": tools}),
        ]
        return dispatched if tools else [*dispatched, ("ObservationsCollected", self._run.collected())]

    def _acted(self, happening: Happening) -> list[tuple[str, dict[str, Any]]]:
        self._run.outcomes[happening.key] = {
            **self._run.call(happening.key),
            "outcome": {"finished": "ok"}.get(happening.kind, happening.kind),
            **({"error": happening.text} if happening.text else {}),
        }
        if self._run.expected - self._run.outcomes.keys():
            return []
        return [("ObservationsCollected", self._run.collected())]

    def _unfinished(self) -> list[tuple[str, dict[str, Any]]]:
        """Say what had been done when the run ended in the middle of its tools."""
        missing = self._run.expected - self._run.outcomes.keys()
        return [("ObservationsCollected", self._run.collected())] if missing else []

    def _entry(self, at: datetime, event: str, data: dict[str, Any]) -> JournalEntry:
        entry = JournalEntry(
            sequence=self._sequence, timestamp=at, agent=self._agent, iteration=self._iteration, event=event, data=data
        )
        self._hash = chained(self._hash, entry)
        self._sequence += 1
        return entry.model_copy(update={"hash": self._hash})


class _Iteration:
    """What is known of the iteration that is under way."""

    def __init__(self) -> None:
        self.reply = Reply()
        self.expected: set[str] = set()
        self.outcomes: dict[str, dict[str, Any]] = {}

    @property
    def proposals(self) -> int:
        return len(self.reply.calls) or 1

    def call(self, key: str) -> dict[str, Any]:
        index = _index(key)
        if not 0 <= index < len(self.reply.calls):
            return {"call_id": key}
        call = self.reply.calls[index]
        return {"tool": call.name, "call_id": call.call_id}

    def collected(self) -> dict[str, Any]:
        ordered = [self.outcomes[key] for key in sorted(self.outcomes, key=_index)]
        return {"observation_count": len(self.reply.calls), "outcomes": ordered}


def chained(previous: str, entry: JournalEntry) -> str:
    """Return the hash of an entry: sha256 over the hash before it and every field of its own."""
    body = to_json(entry.model_dump(mode="json", exclude={"hash"}))
    return sha256(previous.encode() + body).hexdigest()


def first_break(entries: Iterable[JournalEntry]) -> int | None:
    """Return the sequence of the first entry whose hash or number does not follow from those before it, or None."""
    previous = GENESIS
    for expected, entry in enumerate(entries):
        previous = chained(previous, entry)
        if entry.hash != previous or entry.sequence != expected:
            return entry.sequence
    return None


def _index(key: str) -> int:
    _, _, index = key.partition(".")
    return int(index) if index.isdigit() else -1


def _intervention(happening: Happening) -> list[tuple[str, dict[str, Any]]]:
    if happening.name not in INTERVENTIONS:
        return [("InterventionReceived", {"kind": happening.name, "known": False})]
    value = happening.value[0] if happening.value else None
    return [("InterventionReceived", {"kind": happening.name, **({"text": value} if value is not None else {})})]


def _termination(happening: Happening) -> dict[str, Any]:
    if happening.kind == "workflow_completed":
        found = _object(happening.value)
        keys = ("iterations", "usage", "tool_calls", "duration_s", "conversation_digest")
        return {**_object(found.get("termination")), **{key: found.get(key) for key in keys}}
    reasons = {
        "workflow_failed": "error",
        "workflow_cancelled": "aborted",
        "workflow_terminated": "aborted",
        "workflow_timed_out": "timeout",
    }
    detail = happening.text or happening.kind.removeprefix("workflow_")
    return {"reason": reasons.get(happening.kind, "error"), "detail": detail}


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
