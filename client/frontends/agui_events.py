"""The steps of a turn as events of AG-UI, for a client that may have some of its messages already.

The package of the protocol comes with an extra. So this file is imported only by a request, not with the console.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ag_ui import core
from pydantic_core import to_json

from orga.client.frontends import turns
from orga.client.frontends.interrupts import interrupt_of
from orga.client.frontends.reach import OpenWait


@dataclass
class Shown:
    """The messages of a client, and the events that it lacks. Reading a turn again repeats the ids of its messages."""

    given: core.RunAgentInput
    base: str
    run_id: str = ""
    _open: set[str] = field(default_factory=set[str])
    """Messages whose text streams."""
    _subagents: dict[str, turns.Delegated] = field(default_factory=dict[str, turns.Delegated])

    @cached_property
    def _messages(self) -> dict[str, dict[str, Any]]:
        """The client's messages by id. Those of this run are added as they are sent."""
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
                    yield from self._text(turns.Text("", -1, step.new_output, is_whole=True))
                yield self.finished(step)
            case _:
                pass

    def open_subagents(self) -> Iterator[core.BaseEvent]:
        """Announce the delegates at work whose start the client has seen in an earlier run of the protocol."""
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
        """Send what is new of a text. After a failed attempt, one that does not continue is replaced at its end."""
        message_id = self._id(step.run, f"{step.iteration}{'/thinking' if step.is_thinking else ''}")
        role = "reasoning" if step.is_thinking else "assistant"
        message = self._messages.get(message_id) or {"id": message_id, "role": role, **_of(step.run)}
        had = message.get("content") or ""
        is_continued = step.text.startswith(had)
        start, content, end = _REASONING if step.is_thinking else _TEXT
        own: dict[str, Any] = {"message_id": message_id, **_of(step.run)}
        if is_continued and len(step.text) > len(had):
            self._messages[message_id] = message | {"content": step.text}
            if message_id not in self._open:
                self._open.add(message_id)
                yield from (kind(**own) for kind in start)
            yield content(**own, delta=step.text[len(had) :])
        if step.is_whole and message_id in self._open:
            self._open.remove(message_id)
            yield from (kind(**own) for kind in end)
        if step.is_whole and not is_continued and step.text:
            self._messages[message_id] = message | {"content": step.text}
            yield self._snapshot()

    def _call(self, step: turns.CallMade) -> Iterator[core.BaseEvent]:
        parent, call_id = self._id(step.run, step.iteration), self._id(step.run, step.place)
        message = self._messages.setdefault(parent, {"id": parent, "role": "assistant", **_of(step.run)})
        calls = [*(message.get("toolCalls") or ())]
        if any(call["id"] == call_id for call in calls):
            return
        function = {"name": step.tool, "arguments": step.arguments}
        message["toolCalls"] = [*calls, {"id": call_id, "type": "function", "function": function}]
        own: dict[str, Any] = {"tool_call_id": call_id, **_of(step.run)}
        yield core.ToolCallStartEvent(**own, tool_call_name=step.tool, parent_message_id=parent)
        yield core.ToolCallArgsEvent(**own, delta=step.arguments)
        yield core.ToolCallEndEvent(**own)

    def _result(self, step: turns.CallEnded) -> Iterator[core.BaseEvent]:
        call_id = self._id(step.run, step.place)
        if (message_id := f"{call_id}/result") not in self._messages:
            content = {"id": message_id, "role": "tool", "toolCallId": call_id, "content": step.text}
            self._messages[message_id] = content | _of(step.run)
            own: dict[str, Any] = {"message_id": message_id, "tool_call_id": call_id, **_of(step.run)}
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
        """End the run of the protocol with all that waits. Calls of delegates are not in the journal yet."""
        for asked in waits:
            for item in asked.calls if asked.run.id != self.run_id else ():
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


_TEXT: Any = (core.TextMessageStartEvent,), core.TextMessageContentEvent, (core.TextMessageEndEvent,)
_REASONING: Any = (
    (core.ReasoningStartEvent, core.ReasoningMessageStartEvent),
    core.ReasoningMessageContentEvent,
    (core.ReasoningMessageEndEvent, core.ReasoningEndEvent),
)


def _of(run: str) -> dict[str, Any]:
    return {"subagent_run_id": run} if run else {}
