"""AG-UI 1.0: `POST /agui/{agent}` runs an agent for CopilotKit, assistant-ui and other clients of the protocol.

A thread is a session, and a run of the protocol is a turn or the rest of one. The client sends the messages it has, the
journal has all, and the stream carries the difference. So a client that lost its connection repeats its request.

What waits for a person ends a run of the protocol with an interrupt for each question. The next request decides it.
"""

import importlib.util
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from orga.activities.adapters.problem import extra_remedy
from orga.client.console.doors import Visitor
from orga.client.console.problems import Problem
from orga.client.console.routes import Adapter, Console, invalid, json_body
from orga.client.errors import OrgaError
from orga.client.frontends.interrupts import decide, interrupt_of
from orga.client.frontends.reach import open_waits
from orga.client.frontends.threads import (
    TurnStream,
    admitted,
    asked_turn,
    console_address,
    current_turn,
    find_run,
    known_turn,
    message_text,
    own_id,
    post_message,
    start_thread,
)
from orga.client.frontends.turns import Over, TurnFold, TurnProgress, Waiting, read_past, turn_steps
from orga.client.runs.agents import AgentHandle
from orga.client.runs.ids import made_version
from orga.client.runs.sessions import SessionHandle
from orga.workflows.types.json_text import as_object
from orga.workflows.types.models.usage import UsageTotals
from orga.workflows.types.record import validation_problems
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.text import clean_json

if TYPE_CHECKING:
    from ag_ui.core import BaseEvent, RunAgentInput
from collections.abc import Iterator
from dataclasses import field
from functools import cached_property

from ag_ui import core
from pydantic_core import to_json

from orga.client.frontends import turns
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


_STATE_KEYS = {"phase", "iteration", "plan", "budgets", "usage"}


def agui_adapter() -> Adapter:
    return Adapter("agui", (Route("/agui/{agent}", _respond, methods=["POST"], name="agui"),))


async def _respond(request: Request) -> Response:
    console, visitor = admitted(request, "operator", is_write=True)
    if importlib.util.find_spec("ag_ui") is None:
        raise Problem(501, f"AG-UI needs the extra agui. Install it: {extra_remedy('agui')}")
    from ag_ui.core import RunAgentInput

    try:
        given = RunAgentInput.model_validate(clean_json(await json_body(request)))
    except ValidationError as error:
        raise invalid(validation_problems(error)) from None
    run = _ProtocolRun(console, visitor, unquote(request.path_params["agent"]), given, console_address(request))
    return TurnStream(run.events(), _failed, _fields, request)


def _failed(message: str, code: str) -> "BaseEvent":
    from ag_ui.core import RunErrorEvent

    return RunErrorEvent(message=message, code=code)


def _new_message(given: "RunAgentInput", *, only_last: bool = False) -> tuple[str, str] | None:
    """Return the id and text of the user's last message. With `only_last`, nothing may come after it."""
    messages = given.messages[-1:] if only_last else given.messages
    message = next((each for each in reversed(messages) if each.role == "user"), None)
    if message is None:
        return None
    context = [f"{each.description}: {each.value}" for each in given.context or ()]
    text = "\n\n".join([message_text(message.model_dump()["content"], "messages"), *context])
    return f"agui-{sha256(f'{message.id} {text}'.encode()).hexdigest()[:32]}", text


@dataclass
class _ProtocolRun:
    console: Console
    visitor: Visitor
    agent: str
    given: "RunAgentInput"
    base: str

    async def events(self) -> "AsyncGenerator[BaseEvent]":
        from orga.client.frontends.agui import Shown

        shown = Shown(self.given, self.base)
        yield shown.started()
        run = await self._find()
        past = await read_past(run) if run else []
        seen, last = 0, None
        if self.given.resume:
            if run is None:
                raise Problem(404, "resume: this thread has no interrupts. Send a message instead")
            turn, last = await self._resume(run, past)
            seen = 0 if any(each.id.startswith(f"{run.id}/") for each in self.given.messages) else _last_question(past)
        else:
            run, turn = await self._send(run, past)
        if run is None or turn == 0:
            yield shown.finished(Over("completed", "", "", UsageTotals()))
            return
        yield await self._state(run)
        shown.run_id, fold, newest = run.id, TurnFold(run.id, turn, last), past[-1].sequence if past else -1
        for entry in past[:seen]:
            for step in fold.take(entry):
                list(shown.take(step))
        for event in shown.open_subagents():
            yield event
        async for step in turn_steps(run, fold, past[seen:]):
            if isinstance(step, TurnProgress) and step.is_plan:
                yield shown.plan(fold)
            elif isinstance(step, Waiting | Over) or (isinstance(step, TurnProgress) and step.entry.sequence > newest):
                yield await self._state(run)
            for event in shown.take(step):
                yield event
            if isinstance(step, Waiting):
                return

    async def _resume(self, run: AgentHandle, past: list[JournalEntry]) -> tuple[int | None, int | None]:
        """Decide what the request answers. Return the turn that asked, and the turn of a message that comes with it."""
        answers = self.given.resume or []
        await decide(self.console, run, self.visitor, answers)
        if not isinstance(run, SessionHandle):
            return None, None
        turn = asked_turn(past, run.id, {each.interrupt_id for each in answers})
        message = _new_message(self.given, only_last=True)
        if message is None or any(entry.data.get("message") == message[1] for entry in past):
            return turn, None
        when_busy = "interrupt" if all(each.status == "cancelled" for each in answers) else "enqueue"
        return turn, await post_message(run, message[1], self.visitor.name, message[0], when_busy)

    async def _find(self) -> AgentHandle | None:
        """Return the run of the thread. The thread may also be the id of a run that was started elsewhere.

        It may not be an id that somebody chose: whoever guesses the name of a thread would get its messages.
        """
        named = [] if made_version(self.given.thread_id) is None else [self.given.thread_id]
        for name in (*named, self._own_id("session"), self._own_id("goal")):
            if found := await find_run(self.console, self.visitor, name, self.agent):
                return found
        return None

    def _own_id(self, kind: str) -> str:
        return own_id(kind, self.visitor, "agui", self.agent, self.given.thread_id)

    async def _send(self, run: AgentHandle | None, past: list[JournalEntry]) -> tuple[AgentHandle | None, int | None]:
        """Send the message of the request, if there is one. Return the run, and the turn to show.

        The turn is 0 if there is nothing to show, and None for a run that is no session.
        """
        if (message := _new_message(self.given)) is None:
            return run, current_turn(past) if run is None or isinstance(run, SessionHandle) else None
        message_id, text = message
        if run is None:
            wanted = as_object(self.given.forwarded_props)
            given = {"agent": self.agent} | {key: wanted[key] for key in ("tenant",) if key in wanted}
            if wanted.get("kind") == "goal":
                goal = given | {"goal": text}
                return await start_thread(self.console, self.visitor, "goal", self._own_id("goal"), goal), None
            run = await start_thread(self.console, self.visitor, "session", self._own_id("session"), given)
        if not isinstance(run, SessionHandle):
            if not past or past[0].data.get("task") == text:  # the same request again
                return run, None
            await run.steer(text, by=self.visitor.name, intervention_id=message_id)
            return run, None
        if (turn := known_turn(past, message_id)) is None:
            if current_turn(past) and (waits := await open_waits(run)):
                ids = ", ".join(interrupt_of(wait, run.id, self.base).id for wait in waits)
                raise Problem(409, f"this thread waits for a person. Resume its interrupts first: {ids}")
            turn = await post_message(run, text, self.visitor.name, message_id)
        return run, turn

    async def _state(self, run: AgentHandle) -> "BaseEvent":
        from ag_ui.core import StateSnapshotEvent

        state: dict[str, Any] = {"run": run.id, "url": f"{self.base}runs/{run.id}"}
        with suppress(OrgaError):  # without a worker, the journal goes on
            state |= (await run.status()).model_dump(mode="json", include=_STATE_KEYS)
        return StateSnapshotEvent(snapshot=state)


def _fields(event: "BaseEvent") -> dict[str, str]:
    return {"data": event.model_dump_json(by_alias=True)}


def _last_question(past: list[JournalEntry]) -> int:
    """Return how many entries there are up to the last question, which a client without messages has seen."""
    asked = {"ApprovalRequested", "QuestionAsked"}
    found = (at for at, e in enumerate(past, 1) if e.event in asked or e.data.get("kind") == "delegate_held")
    return max(found, default=0)
