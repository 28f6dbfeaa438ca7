"""AG-UI 1.0: `POST /agui/{agent}` runs an agent for CopilotKit, assistant-ui and other clients of the protocol.

A thread is a session, and a run of the protocol is a turn or the rest of a turn. The client sends the messages that it
has, and the stream sends the others from the journal. So a client that lost its connection repeats its request.

If questions wait for a person, the run of the protocol ends with an interrupt for each. The next request decides them.
"""

import importlib.util
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from temporalio.client import Client

from orga.activities.adapters.problem import extra_remedy
from orga.client.console.doors import Visitor
from orga.client.console.problems import Problem, invalid
from orga.client.console.routes import Adapter, Console, json_body
from orga.client.errors import OrgaError
from orga.client.frontends.reach import open_waits
from orga.client.frontends.threads import (
    TurnStream,
    admit,
    console_address,
    current_turn,
    find_run,
    message_parts,
    own_id,
    post_message,
    start_thread,
    turn_of_message,
    turn_that_asked,
)
from orga.client.frontends.turns import Over, TurnFold, TurnProgress, Waiting, read_past, turn_steps
from orga.client.runs.agents import AgentHandle
from orga.client.runs.attachments import message_with_media
from orga.client.runs.ids import made_version
from orga.client.runs.sessions import SessionHandle
from orga.workflows.types.input import Attachment
from orga.workflows.types.json_text import as_object
from orga.workflows.types.models.usage import UsageTotals
from orga.workflows.types.record import validation_problems
from orga.workflows.types.sessions.session_input import SessionMessage, WhenBusy
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.text import clean_json

if TYPE_CHECKING:
    from ag_ui.core import BaseEvent, RunAgentInput

_STATE_KEYS = {"phase", "iteration", "plan", "budgets", "usage"}


def agui_adapter() -> Adapter:
    return Adapter("agui", (Route("/agui/{agent}", _respond, methods=["POST"], name="agui"),), media_paths=("/agui/",))


async def _respond(request: Request) -> Response:
    console, visitor = admit(request, "operator", is_write=True)
    if importlib.util.find_spec("ag_ui") is None:
        raise Problem(501, f"AG-UI needs the extra agui. Install it: {extra_remedy('agui')}")
    from ag_ui.core import RunAgentInput

    try:
        given = RunAgentInput.model_validate(clean_json(await json_body(request)))
    except ValidationError as error:
        raise invalid(validation_problems(error)) from None
    run = _ProtocolRun(console, visitor, unquote(request.path_params["agent"]), given, console_address(request))
    return TurnStream(run.events(), _error_event, _sse_fields, request)


def _error_event(message: str, code: str) -> "BaseEvent":
    from ag_ui.core import RunErrorEvent

    return RunErrorEvent(message=message, code=code)


class _NewMessage(NamedTuple):
    id: str
    text: str
    attachments: tuple[Attachment, ...]


async def _new_message(given: "RunAgentInput", client: Client, *, only_last: bool = False) -> _NewMessage | None:
    """Return the user's last message, and store its attachments. With `only_last`, return None if others follow it."""
    messages = given.messages[-1:] if only_last else given.messages
    message = next((each for each in reversed(messages) if each.role == "user"), None)
    if message is None:
        return None
    context = [f"{each.description}: {each.value}" for each in given.context or ()]
    written, media = message_parts(message.model_dump()["content"], "messages")
    written, attachments = await message_with_media(written, media, client)
    text = "\n\n".join([written, *context])
    content = " ".join([message.id, text, *(each.digest for each in attachments)])
    return _NewMessage(f"agui-{sha256(content.encode()).hexdigest()[:32]}", text, attachments)


def _refuse_unusable(message: _NewMessage) -> None:
    """Raise Problem for a message that no session accepts: it is empty or too long."""
    try:
        SessionMessage(text=message.text, message_id=message.id)
    except ValidationError as error:
        raise Problem(422, f"messages: {'; '.join(validation_problems(error))}") from None


class _Shown(NamedTuple):
    """The part of a run that the answer to a request shows."""

    run: AgentHandle
    turn: int | None
    """The first turn of a session. None: the whole run."""
    last_turn: int | None = None
    """The last turn of a session. None: only the first."""


@dataclass
class _ProtocolRun:
    """One request, which is a run of the protocol."""

    console: Console
    visitor: Visitor
    agent: str
    given: "RunAgentInput"
    base: str
    """The address of the console's pages."""

    async def events(self) -> "AsyncGenerator[BaseEvent]":
        """Carry out the request, and yield the events that its client lacks."""
        from orga.client.frontends.agui_events import ClientView

        view = ClientView(self.given, self.base)
        yield view.started()
        found = await self._find()
        past = await read_past(found) if found else []
        if not self.given.resume:
            shown = await self._send(found, past)
        elif found is not None:
            shown = await self._resume(found, past)
        else:
            raise Problem(404, "resume: this thread has no interrupts. Send a message instead")
        if shown is None:
            yield view.finished(Over("completed", "", "", UsageTotals()))
            return
        seen_count = _count_to_last_question(past) if self._has_seen_past(shown.run) else 0
        yield await self._state(shown.run)
        view.run_id, fold = shown.run.id, TurnFold(shown.run.id, shown.turn, shown.last_turn)
        for entry in past[:seen_count]:
            for step in fold.take(entry):
                list(view.take(step))  # the client has seen these events; only the view needs them
        for event in view.open_subagents():
            yield event
        newest = past[-1].sequence if past else -1
        async for step in turn_steps(shown.run, fold, past[seen_count:]):
            is_new_progress = isinstance(step, TurnProgress) and step.entry.sequence > newest
            if isinstance(step, TurnProgress) and step.is_plan:
                yield view.plan(fold)
            elif is_new_progress or isinstance(step, Waiting | Over):
                yield await self._state(shown.run)
            for event in view.take(step):
                yield event
            if isinstance(step, Waiting):
                return

    def _has_seen_past(self, run: AgentHandle) -> bool:
        """Return whether the client answers questions and sends no messages of the run, because it keeps none."""
        return bool(self.given.resume) and not any(each.id.startswith(f"{run.id}/") for each in self.given.messages)

    async def _resume(self, run: AgentHandle, past: list[JournalEntry]) -> _Shown:
        """Carry out the request's decisions. Show the turn that asked, and that of a new message in the request."""
        from orga.client.frontends.agui_events import decide

        answers = self.given.resume or []
        await decide(self.console, run, self.visitor, answers)
        if not isinstance(run, SessionHandle):
            return _Shown(run, None)
        turn = turn_that_asked(past, run.id, {each.interrupt_id for each in answers})
        message = await _new_message(self.given, self.console.client, only_last=True)
        if message is None or any(entry.data.get("message") == message.text for entry in past):
            return _Shown(run, turn)
        when_busy = "interrupt" if all(each.status == "cancelled" for each in answers) else "enqueue"
        return _Shown(run, turn, await self._post(run, message, when_busy))

    async def _post(self, session: SessionHandle, message: _NewMessage, when_busy: WhenBusy = "enqueue") -> int:
        return await post_message(
            session,
            message.text,
            by=self.visitor.name,
            message_id=message.id,
            when_busy=when_busy,
            attachments=message.attachments,
        )

    async def _find(self) -> AgentHandle | None:
        """Return the run of the thread.

        A thread may also name a run that was started elsewhere, but only by an id that orga made. With a chosen id,
        somebody who guesses the name of a thread could start a run of that id, and would get the thread's messages.
        """
        made_ids = [] if made_version(self.given.thread_id) is None else [self.given.thread_id]
        for run_id in (*made_ids, self._own_id("session"), self._own_id("goal")):
            if run := await find_run(self.console, self.visitor, run_id, self.agent):
                return run
        return None

    def _own_id(self, kind: str) -> str:
        return own_id(kind, self.visitor, "agui", self.agent, self.given.thread_id)

    async def _send(self, run: AgentHandle | None, past: list[JournalEntry]) -> _Shown | None:
        """Send the message of the request, if there is one. Return None if there is nothing to show."""
        message = await _new_message(self.given, self.console.client)
        if message is None:
            return _current(run, past)
        if run is None:
            wanted = as_object(self.given.forwarded_props)
            given = {"agent": self.agent}
            if "tenant" in wanted:
                given["tenant"] = wanted["tenant"]
            if wanted.get("kind") == "goal":
                attached = [each.model_dump() for each in message.attachments]
                goal = given | {"goal": message.text, "attachments": attached}
                return _Shown(await start_thread(self.console, self.visitor, "goal", self._own_id("goal"), goal), None)
            _refuse_unusable(message)  # before a session is started, because that would stay open
            run = await start_thread(self.console, self.visitor, "session", self._own_id("session"), given)
        if isinstance(run, SessionHandle):
            return _Shown(run, await self._turn_of(run, past, message))
        is_repeated = not past or past[0].data.get("task") == message.text
        if not is_repeated:
            await self._guide(run, message)
        return _Shown(run, None)

    async def _guide(self, run: AgentHandle, message: _NewMessage) -> None:
        if message.attachments:
            raise Problem(422, "messages: guidance for a run has no pictures. Send only text")
        await run.steer(message.text, by=self.visitor.name, intervention_id=message.id)

    async def _turn_of(self, session: SessionHandle, past: list[JournalEntry], message: _NewMessage) -> int:
        """Return the turn of a message. Send the message, unless it was sent before."""
        if (turn := turn_of_message(past, message.id)) is not None:
            return turn
        if current_turn(past) and (waits := await open_waits(session)):
            from orga.client.frontends.agui_events import interrupt_of

            ids = ", ".join(interrupt_of(wait, session.id, self.base).id for wait in waits)
            raise Problem(409, f"this thread waits for a person. Resume its interrupts first: {ids}")
        return await self._post(session, message)

    async def _state(self, run: AgentHandle) -> "BaseEvent":
        from ag_ui.core import StateSnapshotEvent

        state: dict[str, Any] = {"run": run.id, "url": f"{self.base}runs/{run.id}"}
        with suppress(OrgaError):  # no worker is running: the state lacks these keys
            state |= (await run.status()).model_dump(mode="json", include=_STATE_KEYS)
        return StateSnapshotEvent(snapshot=state)


def _current(run: AgentHandle | None, past: list[JournalEntry]) -> _Shown | None:
    """Return the part of a thread that is under way. Return None if there is none."""
    if not isinstance(run, SessionHandle):
        return None if run is None else _Shown(run, None)
    turn = current_turn(past)
    return _Shown(run, turn) if turn else None


def _sse_fields(event: "BaseEvent") -> dict[str, str]:
    return {"data": event.model_dump_json(by_alias=True)}


def _count_to_last_question(past: list[JournalEntry]) -> int:
    """Return the number of entries up to the last question, which a client that keeps no messages has seen."""
    counts = (
        count
        for count, entry in enumerate(past, 1)
        if entry.event in {"ApprovalRequested", "QuestionAsked"} or entry.data.get("kind") == "delegate_held"
    )
    return max(counts, default=0)
