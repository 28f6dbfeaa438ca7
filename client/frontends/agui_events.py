"""Turns the steps of a turn into events of AG-UI, and carries out the decisions of a client.

A question to people is an interrupt, and the next request decides it.

The package of the protocol comes with an extra. So only a request imports this file, not the console itself.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ag_ui import core
from pydantic_core import to_json

from orga.client.console.doors import Visitor
from orga.client.console.problems import Problem
from orga.client.console.routes import Console
from orga.client.errors import Refused
from orga.client.frontends import turns
from orga.client.frontends.reach import OpenWait, held_arguments, open_waits
from orga.client.frontends.threads import find_run
from orga.client.runs.agents import AgentHandle
from orga.client.runs.sessions import SessionHandle
from orga.workflows.types.json_text import as_object, as_text
from orga.workflows.types.questions import ANSWER, Choice, Item

_OUTPUT = -1
"""In place of an iteration, for an output that differs from the last reply."""


@dataclass
class ClientView:
    """Knows the messages that a client has, and yields only the events that the client lacks.

    A message has the same id whenever its turn is read again.
    """

    given: core.RunAgentInput
    base: str
    """The address of the console's pages."""
    run_id: str = ""
    """The id of orga's run. `given.run_id` is a run of the protocol: one request."""
    _open: set[str] = field(default_factory=set[str])
    """Messages whose text streams."""
    _subagents: dict[str, turns.Delegated] = field(default_factory=dict[str, turns.Delegated])

    @cached_property
    def _messages(self) -> dict[str, dict[str, Any]]:
        """The client's messages by id. They include those that were sent to it."""
        return {each.id: each.model_dump(by_alias=True) for each in self.given.messages}

    @property
    def _ids(self) -> dict[str, str]:
        return {"thread_id": self.given.thread_id, "run_id": self.given.run_id}

    def started(self) -> core.BaseEvent:
        return core.RunStartedEvent.model_validate({**self._ids, "protocol_version": "1.0"})

    def take(self, step: turns.Step) -> Iterator[core.BaseEvent]:
        match step:
            case turns.Text():
                yield from self._text(step)
            case turns.CallMade():
                yield from self._call(step)
            case turns.CallEnded():
                yield from self._result(step)
            case turns.Delegated():
                yield from self._delegation(step)
            case turns.Waiting():
                yield from self._interrupted(step.waits)
            case turns.Over():
                if step.new_output:
                    yield from self._text(turns.Text("", _OUTPUT, step.new_output, is_whole=True))
                yield self.finished(step)
            case _:
                pass

    def open_subagents(self) -> Iterator[core.BaseEvent]:
        """Announce again the delegates that still work. An earlier run of the protocol announced them first."""
        for started in [*self._subagents.values()]:
            yield from self._delegation(started)

    def plan(self, fold: turns.TurnFold) -> core.BaseEvent:
        plan = fold.view.plan.as_status() or {}
        return core.ActivitySnapshotEvent(message_id=f"{self.run_id}/plan", activity_type="plan", content=plan)

    def finished(self, over: turns.Over) -> core.BaseEvent:
        usage = core.TokenUsage(input_tokens=over.usage.input_tokens, output_tokens=over.usage.output_tokens)
        if over.reason in turns.FAILED:
            return core.RunErrorEvent(message=over.detail or over.reason, code=over.reason, usage=[usage])
        outcome = {"type": "cancelled" if over.reason in turns.CANCELLED else "success"}
        result = {"output": over.output, "reason": over.reason, "detail": over.detail}
        return core.RunFinishedEvent.model_validate(
            {**self._ids, "result": result, "outcome": outcome, "usage": [usage]}
        )

    def _id(self, run: str, part: object) -> str:
        return f"{run or self.run_id}/{part}"

    def _text(self, step: turns.Text) -> Iterator[core.BaseEvent]:
        """Send the new part of a text. A whole text that does not continue the client's text replaces it."""
        message_id = self._id(step.run, f"{step.iteration}{'/thinking' if step.is_thinking else ''}")
        role = "reasoning" if step.is_thinking else "assistant"
        message = self._messages.get(message_id) or {"id": message_id, "role": role, **_subagent_field(step.run)}
        clients_text = message.get("content") or ""
        is_continued = step.text.startswith(clients_text)
        start, content, end = _REASONING if step.is_thinking else _TEXT
        own: dict[str, Any] = {"message_id": message_id, **_subagent_field(step.run)}
        if is_continued and step.text != clients_text:
            self._messages[message_id] = message | {"content": step.text}
            if message_id not in self._open:
                self._open.add(message_id)
                yield from (event(**own) for event in start)
            yield content(**own, delta=step.text[len(clients_text) :])
        if not step.is_whole:
            return
        if message_id in self._open:
            self._open.remove(message_id)
            yield from (event(**own) for event in end)
        if not is_continued and step.text:
            self._messages[message_id] = message | {"content": step.text}
            yield self._snapshot()

    def _call(self, step: turns.CallMade) -> Iterator[core.BaseEvent]:
        parent, call_id = self._id(step.run, step.iteration), self._id(step.run, step.place)
        message = self._messages.setdefault(parent, {"id": parent, "role": "assistant", **_subagent_field(step.run)})
        calls = [*(message.get("toolCalls") or ())]
        if any(call["id"] == call_id for call in calls):
            return
        function = {"name": step.tool, "arguments": step.arguments}
        message["toolCalls"] = [*calls, {"id": call_id, "type": "function", "function": function}]
        own: dict[str, Any] = {"tool_call_id": call_id, **_subagent_field(step.run)}
        yield core.ToolCallStartEvent(**own, tool_call_name=step.tool, parent_message_id=parent)
        yield core.ToolCallArgsEvent(**own, delta=step.arguments)
        yield core.ToolCallEndEvent(**own)

    def _result(self, step: turns.CallEnded) -> Iterator[core.BaseEvent]:
        call_id = self._id(step.run, step.place)
        if (message_id := f"{call_id}/result") not in self._messages:
            content = {"id": message_id, "role": "tool", "toolCallId": call_id, "content": step.text}
            self._messages[message_id] = content | _subagent_field(step.run)
            own: dict[str, Any] = {"message_id": message_id, "tool_call_id": call_id, **_subagent_field(step.run)}
            yield core.ToolCallResultEvent(**own, content=step.text, metadata={"orga": {"outcome": step.outcome}})

    def _delegation(self, step: turns.Delegated) -> Iterator[core.BaseEvent]:
        if not step.reason:
            self._subagents[step.child] = step
            yield core.SubagentStartedEvent(
                subagent_run_id=step.child,
                name=step.agent,
                parent_tool_call_id=self._id(step.run, step.place),
                parent_subagent_run_id=step.run or None,
            )
        elif self._subagents.pop(step.child, None):
            if step.reason == "completed":
                yield core.SubagentFinishedEvent(subagent_run_id=step.child)
            else:
                yield core.SubagentErrorEvent(subagent_run_id=step.child, message=step.reason)

    def _interrupted(self, waits: list[OpenWait]) -> Iterator[core.BaseEvent]:
        """End the run of the protocol with an interrupt for each open question."""
        for asked in waits:
            if asked.run.id == self.run_id:
                continue
            for item in asked.calls:  # a held call of a delegate is not in the journal of this run yet
                arguments = to_json(item.call.get("arguments") or {}, inf_nan_mode="strings").decode()
                tool, iteration = item.call.get("name", ""), int(item.place.partition(".")[0] or 0)
                yield from self._call(turns.CallMade(asked.run.id, iteration, item.place, tool, arguments))
        interrupts = [interrupt_of(asked, self.run_id, self.base) for asked in waits]
        for child in self._subagents:
            own = [each.id for each in interrupts if each.subagent_run_id == child]
            outcome = {"type": "suspended", "interruptIds": own}
            yield core.SubagentFinishedEvent.model_validate({"subagent_run_id": child, "outcome": outcome})
        yield self._snapshot()
        outcome = {"type": "interrupt", "interrupts": interrupts}
        yield core.RunFinishedEvent.model_validate({**self._ids, "outcome": outcome})

    def _snapshot(self) -> core.BaseEvent:
        return core.MessagesSnapshotEvent.model_validate({"messages": [*self._messages.values()]})


# the events that start a message, carry its text, and end it
_TEXT: Any = (core.TextMessageStartEvent,), core.TextMessageContentEvent, (core.TextMessageEndEvent,)
_REASONING: Any = (
    (core.ReasoningStartEvent, core.ReasoningMessageStartEvent),
    core.ReasoningMessageContentEvent,
    (core.ReasoningMessageEndEvent, core.ReasoningEndEvent),
)


def _subagent_field(run: str) -> dict[str, Any]:
    return {"subagent_run_id": run} if run else {}


# JSON schemas
BOOLEAN, STRING = {"type": "boolean"}, {"type": "string"}


def interrupt_of(asked: OpenWait, thread: str, base: str) -> core.Interrupt:
    is_one_tool_call = len(asked.calls) == 1 and asked.calls[0].call.get("name") != ANSWER
    call = asked.calls[0] if is_one_tool_call else None
    reason = "confirmation" if asked.calls else "input_required"
    expiries = [item.expires_at.isoformat() for item in asked.calls] or [as_text(asked.shown.data.get("expires_at"))]
    own = {"kind": asked.shown.kind, "run": asked.run.id, "url": f"{base}inbox"}
    return core.Interrupt(
        id=f"{asked.run.id}/{asked.shown.wait_id}",
        reason="tool_call" if call else reason,
        message=asked.shown.question,
        tool_call_id=f"{asked.run.id}/{call.place}" if call else None,
        response_schema=_response_schema(asked),
        expires_at=min(expiries) or None,
        metadata={"orga": own | {"calls": [_shown_call(asked, item) for item in asked.calls]}},
        subagent_run_id=None if asked.run.id == thread else asked.run.id,
    )


def _shown_call(asked: OpenWait, item: Item) -> dict[str, Any]:
    return {
        "id": item.approval_id,
        "toolCallId": f"{asked.run.id}/{item.place}",
        "tool": item.call.get("name"),
        "arguments": held_arguments(item),
        "reason": item.reason,
        "approvers": list(item.approvers),
    }


def _response_schema(asked: OpenWait) -> dict[str, Any]:
    """Return the JSON Schema of an answer."""
    keys: dict[str, Any]
    match asked.shown.kind:
        case "approval":
            keys = {"approved": BOOLEAN, "reason": STRING}
            if len(asked.calls) > 1:
                each = {item.approval_id: {**BOOLEAN, "title": item.call.get("name")} for item in asked.calls}
                keys["calls"] = {"type": "object", "properties": each, "additionalProperties": False}
        case "answer":
            keys = {"answer": {**STRING, **({"enum": asked.options} if asked.options else {})}}
        case "result":
            keys = {"result": {}, "error": STRING}
        case "budget":
            keys = {"limit": {"type": "number"}, "choice": {"enum": list(asked.shown.choices)}}
        case _:
            keys = {"choice": {"enum": list(asked.shown.choices)}, "result": STRING, "reason": STRING}
    # the first key is required; for a budget or a result, either key will do
    required = [] if asked.shown.kind in {"budget", "result"} else [next(iter(keys))]
    return {"type": "object", "properties": keys, "required": required, "additionalProperties": False}


async def decide(console: Console, thread: AgentHandle, visitor: Visitor, entries: Sequence[core.ResumeEntry]) -> None:
    """Carry out the decisions of the entries. Ignore an entry whose interrupt is decided already.

    Raises:
        Problem: An entry is not valid or not allowed. Nothing was decided.
        Refused: Somebody else has decided meanwhile, or the visitor is no approver of this call.
    """
    waits = {interrupt_of(each, "", "").id: each for each in await open_waits(thread)}
    decisions = list[_Decision]()
    for entry in entries:
        asked = waits.get(entry.interrupt_id)
        if asked is None:
            if not await _is_decided(console, thread, visitor, entry.interrupt_id):
                problem = f"this thread has no interrupt {entry.interrupt_id[:200]!r}. Take the ids of its last run"
                raise Problem(404, f"resume: {problem}")
            continue
        role = "operator" if asked.shown.kind == "answer" else "approver"
        if not visitor.may(role):
            raise Problem(403, f"this needs the role {role}. Ask somebody who has it, or see the inbox")
        if entry.status == "cancelled":
            decisions += _cancellation(thread, asked, visitor.name)
        else:
            decisions += _decisions(asked, visitor.name, entry.payload)
    for carry_out in decisions:
        await carry_out()


_Decision = Callable[[], Awaitable[Any]]


async def _is_decided(console: Console, thread: AgentHandle, visitor: Visitor, interrupt_id: str) -> bool:
    run_id, _, wait_id = interrupt_id.rpartition("/")
    is_of_thread = run_id == thread.id or run_id.startswith(f"{thread.id}.")
    if not is_of_thread or (run := await find_run(console, visitor, run_id)) is None:
        return False
    return any(entry.data.get("id") == wait_id and not entry.run for entry in await turns.read_past(run))


def _cancellation(thread: AgentHandle, asked: OpenWait, by: str) -> Sequence[_Decision]:
    """Return the decisions if the client cancels a question.

    Held calls are denied. Any other question ends the turn of a session, and outside of sessions it needs an answer.
    """
    if asked.shown.kind == "approval":
        return _decisions(asked, by, {"approved": False, "reason": "cancelled"})
    if isinstance(thread, SessionHandle):
        return [lambda: thread.interrupt("the question was cancelled", by=by)]
    return _decisions(asked, by, None)


def _decisions(asked: OpenWait, by: str, given: Any) -> Sequence[_Decision]:
    """Return the decisions that an answer contains. Raise Problem if it does not fit the question."""
    run, wait, answer = asked.run, asked.shown, as_object(given)
    match wait.kind:
        case "approval":
            return [_call_decision(run, item, answer, by) for item in asked.calls]
        case "answer":
            text = given if isinstance(given, str) else answer.get("answer")
            if not isinstance(text, str) or not text or (asked.options and text not in asked.options):
                raise _invalid_answer(asked, "answer")
            recorded = {"id": wait.wait_id, "answer": text, "by": by}
            return [lambda: _once(run, run.answer(text, wait.wait_id, by), recorded)]
        case "result":
            outcome = {key: answer[key] for key in ("result", "error") if answer.get(key) not in (None, "")}
            if len(outcome) != 1 or not isinstance(answer.get("error", ""), str):
                raise _invalid_answer(asked, "result")
            return [lambda: run.complete_tool_call(wait.wait_id, by=by, **outcome)]
        case _:
            return [_escalation_decision(asked, answer, by)]


def _escalation_decision(asked: OpenWait, answer: Mapping[str, Any], by: str) -> _Decision:
    """Return the decision about an escalation, or about a reached limit, which may be raised."""
    run, wait = asked.run, asked.shown
    limit, choice = _number(answer.get("limit")), answer.get("choice")
    if wait.kind == "budget" and limit is not None:
        limit_name = as_text(wait.data.get("limit"))
        return lambda: run.extend_budget(by=by, **{limit_name: limit})
    if choice not in wait.choices:
        raise _invalid_answer(asked, "choice")
    chosen: Choice = choice
    result, reason = as_text(answer.get("result")), as_text(answer.get("reason"))
    return lambda: run.resolve_escalation(wait.wait_id, chosen, result, by, reason)


def _number(given: Any) -> float | None:
    return given if isinstance(given, int | float) and not isinstance(given, bool) else None


def _call_decision(run: AgentHandle, item: Item, answer: Mapping[str, Any], by: str) -> _Decision:
    approved = as_object(answer.get("calls")).get(item.approval_id, answer.get("approved"))
    if not isinstance(approved, bool):
        raise Problem(422, f"resume: {item.approval_id}: approved must be true or false. Nothing was decided")
    if approved and held_arguments(item) is None:
        raise Problem(409, f"resume: {item.approval_id} has arguments too long to show here. See the inbox")
    send = run.approve if approved else run.deny
    recorded = {"id": item.approval_id, "approved": approved, "approver": by}
    return lambda: _once(run, send(item.approval_id, by, as_text(answer.get("reason"))), recorded)


async def _once(run: AgentHandle, decision: Awaitable[Any], recorded: Mapping[str, Any]) -> None:
    """Await a decision. Ignore its refusal if the journal shows that an earlier request made the same one.

    Args:
        recorded: The data of the journal entry that this decision of this person has.
    """
    try:
        await decision
    except Refused:
        if not any(recorded.items() <= entry.data.items() for entry in await turns.read_past(run)):
            raise


def _invalid_answer(asked: OpenWait, key: str) -> Problem:
    schema = to_json(_response_schema(asked)["properties"][key]).decode()
    return Problem(422, f"resume: {asked.shown.wait_id}: {key} must fit {schema}. Nothing was decided")
