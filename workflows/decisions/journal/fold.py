"""The journal of a run. It is folded from the history, so it cannot differ from it."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from orga.workflows.decisions.begin import carried_state_in_input
from orga.workflows.decisions.compaction import compaction_data
from orga.workflows.decisions.hydration import HYDRATION_EVENT, with_reference_counts
from orga.workflows.decisions.journal.entries import (
    GENESIS_HASH,
    KNOWN_SIGNALS,
    SIGNALS,
    Event,
    EventList,
    JournalStart,
    as_object,
    entry_hash,
    failover_events,
    intervention_events,
    knowledge_events,
    recall_data,
    recall_iteration,
    setup_data,
    termination_data,
    usage_data,
)
from orga.workflows.decisions.journal.iteration import CallTimes, JournalIteration
from orga.workflows.decisions.tool_calls.recovery import tool_recovery
from orga.workflows.types import names
from orga.workflows.types.context import ReasonRequest
from orga.workflows.types.control import Note
from orga.workflows.types.goals.requests import GoalReply
from orga.workflows.types.messages import Reply
from orga.workflows.types.recall import KNOWLEDGE_TOOLS
from orga.workflows.types.setup import Setup
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import Happening, HappeningKind, JournalEntry
from orga.workflows.types.tool_calls.delegation import delegate_activity_id
from orga.workflows.types.tool_calls.gate import SEPARATE_PROPOSALS, Verdicts, gate_subject
from orga.workflows.types.tool_calls.loop_tools import CALL_ENDS
from orga.workflows.types.tool_calls.tools import ToolOutput, ToolSpec

MAX_VALUE_BYTES = 1_000
"""Bytes of JSON of a call's value in an entry. A longer value is only in the result."""

PAUSE_SIGNALS = frozenset({"pause", "resume"})


class JournalFold:
    """Takes the events of a run in order, and returns the entries of each."""

    def __init__(self) -> None:
        self._agent = ""
        self._iteration = 0
        self._prompt = ""
        self._sequence = 0
        self._hash = GENESIS_HASH
        self._setup: Setup | None = None
        self._is_paused = False
        self._current = JournalIteration()
        self._summary: dict[str, Any] = {}
        self._beginning = JournalStart()
        self._build = ""
        self._signals = SIGNALS
        self._times = CallTimes()
        self._replied_at: datetime | None = None

    def feed(self, happening: Happening) -> list[JournalEntry]:
        self._times.take_event(happening)
        return [self._entry(happening.at, event, data) for event, data in self._with_start_event(happening)]

    def nested_entry(self, entry: JournalEntry, run: str) -> JournalEntry:
        """Return a delegated run's entry as one of this journal. An entry of a deeper run keeps its own `run`."""
        return self._with_chain_hash(entry.with_sequence(self._sequence, {"run": run, **entry.data}))

    def _with_start_event(self, happening: Happening) -> Iterable[Event]:
        """Yield an event's entries. The start of the run always comes first."""
        for found in self._events(happening):
            if self._beginning.is_due:
                yield from self._with_agent_known(self._beginning.unread_start_events())
            yield found

    def _events(self, happening: Happening) -> Iterable[Event]:
        readers: dict[HappeningKind, Callable[[Happening], Iterable[Event]]] = {
            "started": self._on_started,
            "signaled": self._on_signaled,
            "updated": intervention_events,
            "noted": self._on_notes,
            "scheduled": self._on_scheduled,
            "finished": self._on_ended,
            "failed": self._on_ended,
            "cancelled": self._on_ended,
            "child_started": self._on_delegated,
            "child_finished": self._on_delegated,
            "child_failed": self._on_delegated,
            "continued_as_new": lambda _: [],
            "decided": self._on_code_change,
        }
        return readers.get(happening.kind, self._on_terminated)(happening)

    def _on_started(self, happening: Happening) -> EventList:
        arguments: list[Any] = happening.value or []
        self._signals = KNOWN_SIGNALS.get(happening.name, SIGNALS)
        carried = carried_state_in_input(arguments[1]) if len(arguments) > 1 else None
        if carried is not None:
            return self._on_segment_started(carried, happening.at)
        return self._with_agent_known(self._beginning.start_events(as_object(arguments[0] if arguments else None)))

    def _on_segment_started(self, state: AgentState, at: datetime) -> EventList:
        """Take over the carried state. A reply that waited for people keeps its calls open."""
        ended = self._collect_outcomes() if state.pending is None else []
        self._iteration, self._setup, self._is_paused = state.iteration, state.setup, state.paused
        self._current = JournalIteration()
        if state.pending is not None:
            self._current = JournalIteration(state.iteration, state.setup, is_paused=self._is_paused)
            self._current.take_reply(state.pending)
            self._replied_at = at
        if state.setup is not None:
            self._agent = state.setup.agent
        return ended

    def _on_code_change(self, happening: Happening) -> EventList:
        """Add an entry if another build decides from here on. The first build makes none."""
        before, self._build = self._build, happening.key
        return [("BuildChanged", {"before": before, "build": self._build})] if before not in {"", self._build} else []

    def _on_fork_read(self, happening: Happening) -> EventList:
        if happening.kind != "finished":
            return []
        past = AgentState.model_validate(happening.value)
        self._iteration = past.iteration
        return self._with_agent_known(self._beginning.fork_events(past))

    def _with_agent_known(self, found: EventList) -> EventList:
        self._agent = self._beginning.agent
        return found

    def _on_scheduled(self, happening: Happening) -> Iterable[Event]:
        """Yield lazily: each entry gets the iteration that is current when it is yielded."""
        if happening.name not in names.PROMPT_ACTIVITIES:
            yield from self._dispatch_if_first(happening.key)
            return
        yield from self._collect_outcomes()
        request = ReasonRequest.model_validate(happening.value)
        self._iteration, self._prompt = request.iteration, request.context.head
        self._current = JournalIteration(request.iteration, self._setup, is_paused=self._is_paused)
        compacted = compaction_data(request.context)
        if compacted:
            yield "ContextCompacted", {**compacted, **self._summary}
            self._summary = {}

    def _on_ended(self, happening: Happening) -> Iterable[Event]:
        readers: dict[str, Callable[[Happening], Iterable[Event]]] = {
            **dict.fromkeys(names.MODEL_CALLS, self._on_side_model_call),
            names.READ_PAST: self._on_fork_read,
            "prepare": self._on_prepared,
            "summarise": self._on_summarised,
            **dict.fromkeys(names.PROMPT_ACTIVITIES, self._on_reasoned),
            "gate": self._on_gated,
            names.RECALL_CONTEXT: self._on_recalled,
        }
        if happening.name in names.OWN_ACTIVITIES - readers.keys():
            return []
        return readers.get(happening.name, self._on_acted)(happening)

    def _on_prepared(self, happening: Happening) -> EventList:
        if happening.kind != "finished":
            return []
        self._setup = Setup.model_validate(happening.value)
        self._agent = self._setup.agent
        return [("Prepared", setup_data(self._setup))]

    def _on_summarised(self, happening: Happening) -> EventList:
        if happening.kind != "finished":
            return []
        reply = Reply.model_validate(happening.value)
        self._summary = usage_data(reply)
        return failover_events(reply)

    def _on_side_model_call(self, happening: Happening) -> EventList:
        """Return the failovers. A note of the run records what the reply led to."""
        return failover_events(Reply.model_validate(happening.value)) if happening.kind == "finished" else []

    def _on_reasoned(self, happening: Happening) -> EventList:
        if happening.kind != "finished":
            return []
        is_goal_prompt = happening.name in names.GOAL_PROMPTS
        reply = (GoalReply if is_goal_prompt else Reply).model_validate(happening.value)
        self._current.take_reply(reply)
        self._replied_at = happening.at
        actions: list[dict[str, Any]] = [
            {"tool": call.name, "call_id": call.call_id, "arguments": call.arguments} for call in reply.calls
        ]
        if not actions:
            actions = [{"respond": reply.text}]
        prompt = {"turn": happening.name} if is_goal_prompt else {}
        if is_goal_prompt and reply.model != names.PLANNED_MODEL:
            prompt["prompt"] = self._prompt
        data = {**prompt, "actions": actions, "finish": reply.finish, **usage_data(reply)}
        if reply.left_out:
            data["left_out"] = {"calls": reply.left_out, "tools": reply.left_out_tools}
        if isinstance(reply, GoalReply) and reply.repaired:
            data["repaired"] = True
        return [*failover_events(reply), ("ReasoningComplete", data)]

    def _on_gated(self, happening: Happening) -> EventList:
        """Apply the gate's verdicts. If no verdict is missing, add the entry that calls are carried out."""
        if happening.kind != "finished":
            return self._on_gate_failed(happening, {"error": happening.text})
        by_place = Verdicts.model_validate(happening.value).by_place(happening.key)
        if by_place is None:
            return self._on_gate_failed(happening, {"error": "the gate does not say what its verdicts are about"})
        verdicts = self._current.verdicts_in_call_order(by_place)
        verdicts_data = [v.model_dump(exclude_defaults=True, exclude={"permit"}) for v in verdicts.values()]
        denied = sum(v.decision != "allow" for v in verdicts.values())
        judged: dict[str, Any] = {"action_count": len(verdicts), "denied_count": denied, "places": list(verdicts)}
        judged["verdicts"] = verdicts_data
        if (about := next(iter(verdicts), "")) in SEPARATE_PROPOSALS:
            return [("PolicyEvaluated", {**judged, "about": about})]
        calls = self._current.take_verdicts(verdicts)
        again = {} if calls is None else {"calls": calls}
        return [("PolicyEvaluated", {**judged, **again}), *self._dispatch_if_final()]

    def _on_gate_failed(self, happening: Happening, data: dict[str, Any]) -> EventList:
        about = gate_subject(happening.key)
        places = self._current.take_gate_failure(about) if about else []
        known = {"places": places} if places else {}
        failed = {**data, "action_count": len(places) or self._current.proposal_count, **known}
        return [("PolicyEvaluated", failed), *self._dispatch_if_final()]

    def _on_recalled(self, happening: Happening) -> Iterable[Event]:
        """Add an entry for a recall before a reasoning step, which begins the next iteration."""
        yield from self._collect_outcomes()
        self._iteration = recall_iteration(happening.key) or self._iteration
        yield "KnowledgeRecalled", recall_data(happening)

    def _on_acted(self, happening: Happening) -> EventList:
        outcome = "ok" if happening.kind == "finished" else happening.kind
        reported = knowledge_events(happening) if happening.name in KNOWLEDGE_TOOLS else []
        begun = self._dispatch_if_first(happening.key)
        spec = self._tool(happening)
        effect_text = happening.effect_text if spec is not None and spec.effect == "irreversible" else ""
        self._current.record_end(happening.key, outcome, happening.text, self._shown_value(happening), effect_text)
        return [*begun, *self._on_retried(happening, outcome), *reported, *self._collect_if_complete()]

    def _shown_value(self, happening: Happening) -> Any:
        """Return the value of a call, unless it is too large for an entry."""
        spec = self._tool(happening)
        if spec is None or happening.kind != "finished":
            return None
        value = spec.value_in(ToolOutput.model_validate(happening.value).content)
        return value if len(to_json(value)) <= MAX_VALUE_BYTES else None

    def _tool(self, happening: Happening) -> ToolSpec | None:
        return self._setup.tool(happening.name) if self._setup else None

    def _on_retried(self, happening: Happening, outcome: str) -> EventList:
        """Add an entry for retries, if they are the whole recovery. The run itself notes any other recovery."""
        spec = self._tool(happening)
        if spec is None or self._setup is None or not happening.failed_before:
            return []
        if tool_recovery(spec, self._setup.config).strategy != "retry":
            return []
        call = {"tool": spec.name, **self._current.call_data(happening.key)}
        error = happening.text or happening.failed_before
        data = {"strategy": "retry", "error": error, "outcome": outcome, "attempts": happening.attempts}
        return [("RecoveryTriggered", {**call, **data})]

    def _on_notes(self, happening: Happening) -> EventList:
        return [found for note in map(Note.model_validate, happening.value or []) for found in self._on_note(note)]

    def _on_note(self, note: Note) -> EventList:
        noted = (note.event, note.data)
        if note.event == HYDRATION_EVENT:
            return [(note.event, with_reference_counts(note.data))]
        if note.event not in CALL_ENDS or "place" not in note.data:
            self._current.take_note(note)
            return [(note.event, self._current.note_with_arguments(note.data)), *self._dispatch_if_final()]
        place = str(note.data.get("place"))
        begun = self._dispatch_if_first(place)
        given = note.data.get("outcome")
        outcome = given if isinstance(given, str) else "ok"  # a decision's outcome is its fields
        self._current.record_end(place, outcome, str(note.data.get("error") or ""))
        return [*begun, noted, *self._collect_if_complete()]

    def _on_signaled(self, happening: Happening) -> EventList:
        if happening.name in PAUSE_SIGNALS:
            self._is_paused = happening.name == "pause"
            self._current.record_pause(self._is_paused)
        return intervention_events(happening, self._signals)

    def _on_delegated(self, happening: Happening) -> EventList:
        place = delegate_activity_id(happening.key)
        if happening.kind == "child_started":
            begun = self._dispatch_if_first(place)
            given = as_object(happening.value)
            data = {"agent": given.get("agent", ""), "task": given.get("task", ""), "workflow_id": happening.key}
            return [*begun, ("DelegationStarted", {**self._current.call_data(place), **data})]
        ended = as_object(happening.value)
        termination = as_object(ended.get("termination")) or {"reason": "error", "detail": happening.text}
        is_good = termination.get("reason") == "completed"
        error = "" if is_good else str(termination.get("detail", ""))
        self._current.record_end(place, "ok" if is_good else "failed", error)
        data = {"workflow_id": happening.key, **termination, "usage": ended.get("usage")}
        return [("DelegationEnded", {**self._current.call_data(place), **data}), *self._collect_if_complete()]

    def _on_terminated(self, happening: Happening) -> EventList:
        unused: EventList = [("ContextCompacted", {"unused": True, **self._summary})] if self._summary else []
        return [*self._collect_outcomes(), *unused, ("Terminated", termination_data(happening))]

    def _collect_if_complete(self) -> EventList:
        """Add the entry if every call has succeeded. A failed one may still be recovered, until the next iteration."""
        return self._collect_outcomes() if self._current.is_complete else []

    def _collect_outcomes(self) -> EventList:
        """Add an entry for the outcomes of the iteration, unless there is one already."""
        unbegun = self._dispatch_calls(is_begun=False) if self._current.undispatched_verdicts else []
        if not self._current.is_open:
            return unbegun
        return [*unbegun, ("ObservationsCollected", self._current.collect_outcomes())]

    def _dispatch_if_final(self) -> EventList:  # after the last verdict of the gate, a person or a critic
        undispatched = self._current.undispatched_verdicts
        return self._dispatch_calls(is_begun=True) if undispatched is not None and undispatched.is_final else []

    def _dispatch_if_first(self, activity_id: str) -> EventList:
        """Record an activity. The first sign that the reply's calls are carried out adds the entry about that."""
        return self._dispatch_calls(is_begun=True) if self._current.record_activity(activity_id) else []

    def _dispatch_calls(self, *, is_begun: bool) -> EventList:
        """Add an entry for the calls that are carried out. If there are none, also add the entry for their outcomes."""
        dispatched = ("ToolsDispatched", self._current.record_dispatch(is_begun=is_begun))
        return [dispatched, *self._collect_if_complete()]

    def _entry(self, at: datetime, event: str, data: dict[str, Any]) -> JournalEntry:
        number, agent, iteration = self._sequence, self._agent, self._iteration
        if event == "ToolsDispatched" and self._replied_at is not None:
            data = {**data, "duration_s": round((at - self._replied_at).total_seconds(), 3)}
        entry = JournalEntry(sequence=number, timestamp=at, agent=agent, iteration=iteration, event=event, data=data)
        if event == "ObservationsCollected":
            took_s = self._times.call_seconds(iteration, self._current.reply)
            entry = entry.with_display(took_s, self._current.effect_texts)
        return self._with_chain_hash(entry)

    def _with_chain_hash(self, entry: JournalEntry) -> JournalEntry:
        self._hash = entry_hash(self._hash, entry)
        self._sequence += 1
        return entry.with_hash(self._hash)
