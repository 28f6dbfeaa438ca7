"""One session of an editor: its prompts, what happens in it as updates, and what the person is asked."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from acp import RequestError, helpers, schema
from acp.agent.connection import AgentSideConnection
from pydantic import ValidationError
from temporalio.service import RPCError

from orga.client.errors import NotTakenYet, OrgaError, Refused, ServerLost
from orga.client.frontends.reach import OpenWait, held_arguments, open_waits
from orga.client.journal import event_types as on
from orga.client.journal.events import LiveActivity
from orga.client.journal.reading import read_journal
from orga.client.journal.run_view import Plan, RunView
from orga.client.runs.sessions import SessionHandle
from orga.workflows.types.questions import Choice, Item
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.text import escaped_text, one_line

RESENDS = 5
"""Repetitions of a message that no worker has confirmed. Its id makes it count once."""

DELEGATES_S = 2.0
"""Seconds between two looks at what delegates wait for, while calls are running."""

REFUSED = -32602
"""The protocol's code for a request that cannot be carried out as it is."""

KINDS: dict[str, schema.ToolKind] = {
    **{"read_file": "read", "list_files": "search", "search_text": "search", "recall_knowledge": "search"},
    **{"fetch_url": "fetch", "read_issue": "fetch", "read_pull_request": "fetch"},
    **{"write_file": "edit", "run_command": "execute"},
}
PATH_ARGUMENTS = ("path", "file", "folder")

STOP_REASONS: dict[str, schema.StopReason] = {
    **{"max_iterations": "max_turn_requests", "max_tokens": "max_tokens"},
    **{"interrupted": "cancelled", "aborted": "cancelled"},
}
"""How a turn ends for the client. All other reasons are `end_turn`: a `refusal` would remove the turn there."""

CHOICES: dict[str, tuple[str, schema.PermissionOptionKind]] = {
    "retry": ("Try again", "allow_once"),
    "skip": ("Go on without it", "allow_once"),
    "abort": ("End the turn", "reject_once"),
}

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Return text of a model without characters that a terminal acts on, or that reorder what a person reads."""
    return _HIDDEN.sub("\ufffd", text.replace("\r\n", "\n"))


def content(text: str) -> list[schema.ContentToolCallContent]:
    return [helpers.tool_content(helpers.text_block(text))] if text else []


@dataclass(eq=False)
class Prompt:
    """A prompt that the client waits for."""

    text: str
    turn: int = 0
    """0 until the session has accepted it."""
    is_cancelled: bool = False
    ending: "asyncio.Future[schema.StopReason]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def end(self, reason: schema.StopReason | Exception) -> None:
        if self.ending.done():
            return
        if isinstance(reason, Exception):
            self.ending.set_exception(reason)
        else:
            self.ending.set_result("cancelled" if self.is_cancelled else reason)


@dataclass
class ReplyStream:
    """What the client has of the model's reply that is being written."""

    key: tuple[str, int] = ("", 0)
    """The model call and its attempt."""
    text: str = ""
    thought: int = 0
    """The length of the thinking that was sent."""


def news(tail: str, length: int, sent: int) -> str | None:
    """Return what follows the part of a growing text that was sent. None: the tail begins later."""
    begins = length - len(tail)
    return tail[sent - begins :] if begins <= sent else None


class AcpSession:
    """Follows one session for the client."""

    def __init__(
        self, client: AgentSideConnection, session: SessionHandle, by: str, folder: Path, *, has_forms: bool
    ) -> None:
        self._client, self._session, self._by, self._folder = client, session, by, folder
        self._has_forms = has_forms
        self._view = RunView()
        self._past: dict[str, str] | None = {}
        """While the past is read: results by call, texts that came with calls, outputs by turn. None afterwards."""
        self._is_shown = False
        self._ended = dict[int, schema.StopReason]()
        self._prompts = set[Prompt]()
        self._stream = ReplyStream()
        self._asked = dict[str, asyncio.Task[None]]()
        """By the id of what the client is asked. Without a decision it is asked again with the next prompt."""
        self._question: OpenWait | None = None
        """The question that was shown as text. The next prompt answers it."""
        self._tasks = set[asyncio.Task[None]]()
        self._has_ended = False

    async def begin(self, *, shows_past: bool) -> None:
        """Read the past, and show it to the client if that is wanted. Then follow the session in the background."""
        self._is_shown = shows_past
        if shows_past:
            self._past = await self._read_texts()
            with suppress(OrgaError, RPCError):
                self._past |= {f"turn {each.turn}": each.output for each in await self._session.turns()}
        after = None
        async for entry in read_journal(self._session.client, self._session.id):
            await self._take(entry)
            after = entry.cursor
        self._is_shown, self._past = True, None
        for work in (self._follow(after), self._watch_delegates(), self._ask_open()):
            self._start(work)

    def stop(self, why: str) -> None:
        """Stop following. The run goes on."""
        for task in (*self._tasks, *self._asked.values()):
            task.cancel()
        self._end_all(RequestError(REFUSED, f"{why}; the run goes on as session {self._session.id}"))

    async def prompt(self, text: str, message_id: str) -> schema.StopReason:
        """Send a message, or answer the question that was shown as text, and wait until the turn has ended."""
        if self._has_ended:
            raise self._end_error()
        prompt = Prompt(text)
        self._prompts.add(prompt)
        try:
            if not await self._answer_question(prompt):
                prompt.turn = await self._post(text, message_id)
            if prompt.turn in self._ended:
                prompt.end(self._ended[prompt.turn])
            elif prompt.is_cancelled:
                await self._interrupt(prompt.turn)
            self._asked = {key: task for key, task in self._asked.items() if not task.done()}
            self._start(self._ask_open())
            return await prompt.ending
        finally:
            self._prompts.discard(prompt)

    async def cancel(self) -> None:
        """Interrupt the current turn, and those of all prompts that the client waits for once they begin."""
        for prompt in self._prompts:
            prompt.is_cancelled = True
        if (turn := self._view.turn) and not turn.reason:
            await self._interrupt(turn.number)

    async def _post(self, text: str, message_id: str) -> int:
        for _ in range(RESENDS):
            with suppress(NotTakenYet, ServerLost):
                return await self._session.post(text, message_id=message_id)
        return await self._session.post(text, message_id=message_id)

    async def _interrupt(self, turn: int) -> None:
        with suppress(Refused):  # it has ended, or it is interrupted when it begins
            await self._session.interrupt("cancelled in the editor", turn=turn)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end_all(self, reason: schema.StopReason | Exception, turn: int | None = None) -> None:
        for prompt in self._prompts:
            if turn in (None, prompt.turn):
                prompt.end(reason)

    def _end_error(self) -> RequestError:
        return RequestError(REFUSED, f"session {self._session.id} has ended. Start a new one")

    async def _send(self, update: Any) -> None:
        if self._is_shown:
            with suppress(ConnectionError):  # the client has gone
                await self._client.session_update(self._session.id, update)

    async def _say(self, text: str) -> None:
        if text:
            await self._send(helpers.update_agent_message_text(harmless(text)))

    async def _follow(self, after: str | None) -> None:
        reason: Exception = self._end_error()
        try:
            async for event in self._session.events(after=after):
                if isinstance(event, JournalEntry):
                    await self._take(event)
                elif event.run == self._session.id and event.name == "reason" and not event.is_over:
                    await self._take_live(event)
        except (OrgaError, RPCError) as error:
            reason = RequestError(REFUSED, str(error))
        self._has_ended = True
        self._end_all(reason)

    async def _take(self, entry: JournalEntry) -> None:
        viewed = self._view.take(entry)
        if isinstance(viewed.event, on.PlanMade | on.PlanAdjusted | on.StepExecuted | on.StepEvaluated):
            await self._send(helpers.update_plan(plan_entries(viewed.run.plan)))
        if not entry.run:  # the calls of delegates are no part of the conversation
            await self._take_own(viewed.event)

    async def _take_own(self, event: on.JournalEvent) -> None:
        match event:
            case on.TurnStarted(turn=turn, message=message):
                if all(prompt.text.strip() != message.strip() for prompt in self._prompts):
                    await self._send(helpers.update_user_message_text(harmless(message)))
                if any(prompt.is_cancelled and prompt.turn == turn for prompt in self._prompts):
                    await self._interrupt(turn)
            case on.ReasoningComplete():
                await self._show_reply(event)
            case on.ApprovalRequested() | on.QuestionAsked() if self._past is None:
                self._start(self._ask_open())
            case on.ApprovalResolved(id=decided) | on.QuestionAnswered(id=decided):
                if asking := self._asked.pop(decided, None):  # somebody else was first, or our decision is recorded
                    asking.cancel()
                if self._question and self._question.wait.wait_id == decided:
                    self._question = None
                await self._show_calls(event)
            case on.TurnEnded(turn=turn, reason=reason, detail=detail):
                await self._show_ending(turn, reason, detail)
                ending = self._ended[turn] = STOP_REASONS.get(reason, "end_turn")
                self._end_all(ending, turn)
            case _:
                await self._show_calls(event)

    async def _take_live(self, live: LiveActivity) -> None:
        if self._stream.key != (live.activity_id, live.attempt):
            self._stream = ReplyStream((live.activity_id, live.attempt))
        stream = self._stream
        thought = news(live.thinking, live.thinking_length, stream.thought)
        if thought is None or thought:
            stream.thought = live.thinking_length
            text = live.thinking if thought is None else thought
            await self._send(helpers.update_agent_thought_text(harmless(text)))
        if text := news(live.text, live.text_length, len(stream.text)):
            stream.text += text
            await self._say(text)

    async def _show_reply(self, reply: on.ReasoningComplete) -> None:
        """Send what the client does not have yet of a reply."""
        text = "\n".join(action.respond for action in reply.actions if action.respond)
        if self._past and reply.calls:
            text = self._past.get(f"with {reply.calls[0].call_id}", "")
        sent, self._stream = self._stream.text, ReplyStream()
        if text.strip() != sent.strip():
            await self._say(text.removeprefix(sent) if text.startswith(sent) else f"\n\n{text}")
        for call in reply.calls:
            await self._send(
                helpers.start_tool_call(
                    self._tool_id(call.call_id),
                    call_title(call.tool or "", call.arguments),
                    kind=KINDS.get(call.tool or "", "other"),
                    status="pending",
                    locations=self._locations(call.arguments),
                    raw_input=call.arguments,
                )
            )

    async def _show_calls(self, event: on.JournalEvent) -> None:
        """Show how the calls of the latest reply go on."""
        match event:
            case on.PolicyEvaluated(places=places, verdicts=verdicts):
                for place, verdict in zip(places, verdicts, strict=False):
                    if verdict.decision == "deny":
                        await self._show_denial(place, f"denied: {verdict.reason}")
            case on.ApprovalResolved(kind="call", approved=False) as resolved:
                who = f" by {resolved.approver}" if resolved.approver else ""
                await self._show_denial(resolved.place, f"denied{who}: {resolved.reason}")
            case on.ToolsDispatched(tools=tools):
                for call in tools:
                    await self._show_call(call.call_id, "in_progress")
            case on.ObservationsCollected(outcomes=outcomes) if outcomes:
                results = await self._read_texts() if self._past is None else self._past
                for call in outcomes:
                    status = "completed" if call.outcome == "ok" else "failed"
                    await self._show_call(call.call_id, status, results.get(call.call_id) or call.error or call.outcome)
            case _:
                pass

    async def _show_denial(self, place: str, why: str) -> None:
        number, calls = place.partition(".")[2], self._view.calls
        if number.isdecimal() and int(number) < len(calls):
            await self._show_call(calls[int(number)].call_id, "failed", why)

    async def _show_call(self, call_id: str, status: schema.ToolCallStatus, text: str = "") -> None:
        shown = content(harmless(text)) or None
        await self._send(helpers.update_tool_call(self._tool_id(call_id), status=status, content=shown))

    async def _show_ending(self, turn: int, reason: str, detail: str) -> None:
        """Send what the journal does not have: an answer that no reply of the model was, and why the turn ended."""
        if not (self._view.turn and self._view.turn.answer):
            if self._past is not None:
                await self._say(self._past.get(f"turn {turn}", ""))
            else:
                with suppress(OrgaError, RPCError):
                    turns = await self._session.turns()
                    await self._say(next((each.output for each in turns if each.turn == turn), ""))
        if reason not in {"completed", "interrupted"}:
            await self._say(f"\n\n(The turn ended: {reason}{f', {detail}' if detail else ''})")

    async def _read_texts(self) -> dict[str, str]:
        """Return the results of calls, and the texts that came with calls, as the model sees them now."""
        try:
            messages = await self._session.conversation()
        except (OrgaError, RPCError):  # without a worker there are none
            return {}
        found = {each.call_id: each.text for each in messages if each.call_id}
        return found | {f"with {each.calls[0].call_id}": each.text for each in messages if each.calls}

    def _tool_id(self, call_id: str) -> str:
        """Return the id of a call of this iteration. Some models give calls of later replies the same ids."""
        return f"{self._view.iteration}-{call_id}"

    def _locations(self, arguments: dict[str, Any]) -> list[schema.ToolCallLocation] | None:
        paths = [arguments.get(name) for name in PATH_ARGUMENTS]
        inside = [self._folder / path for path in paths if isinstance(path, str) and path]
        return [schema.ToolCallLocation(path=harmless(str(path))) for path in inside] or None

    async def _watch_delegates(self) -> None:
        """Ask what delegates wait for. The journal has their questions only when they have ended."""
        while True:
            await asyncio.sleep(DELEGATES_S)
            if self._view.phase == "acting":
                await self._ask_open()

    async def _ask_open(self) -> None:
        """Ask the client about everything that waits, and that it was not asked about yet."""
        try:
            waits = await open_waits(self._session)
        except (OrgaError, RPCError):  # without a worker nothing can be decided
            return
        for wait in waits:
            asks: dict[str, Callable[[], Awaitable[bool]]]
            asks = {item.approval_id: partial(self._ask_about_call, wait, item) for item in wait.calls}
            for key, ask in (asks or {wait.wait.wait_id: partial(self._ask_question, wait)}).items():
                if key not in self._asked:
                    self._asked[key] = asyncio.create_task(self._decide(wait, ask))

    async def _decide(self, wait: OpenWait, ask: Callable[[], Awaitable[bool]]) -> None:
        """Ask, and record the decision. Without one, show how to decide it, and let the client go on."""
        why = ""
        try:
            if await ask():
                return
        except (OrgaError, RPCError) as error:
            why = f"Not decided: {error}. "
        if any(prompt.is_cancelled for prompt in self._prompts):
            return
        options = f" ({' / '.join(wait.options)})" if wait.options else ""
        how = "Your next message answers it" if self._question is wait else "It waits in `orga inbox`"
        await self._say(f"\n\n{one_line(wait.wait.question, 1_000)}{one_line(options, 1_000)}\n\n{why}{how}.\n")
        if all(task.done() or task is asyncio.current_task() for task in self._asked.values()):
            self._end_all("end_turn")

    async def _ask_about_call(self, wait: OpenWait, item: Item) -> bool:
        """Ask about one held call, and return whether it was decided."""
        arguments, tool = held_arguments(item), str(item.call.get("name", ""))
        options = [PermissionChoice("reject", "Deny", "reject_once")]
        text = "The arguments are too long to show here. See: orga approve --show"
        if arguments is not None:
            options.insert(0, PermissionChoice("allow", "Allow this call once", "allow_once"))
            text = json.dumps(arguments, indent=1, ensure_ascii=False)
        call = schema.ToolCallUpdate(
            tool_call_id=self._tool_id(str(item.call.get("call_id", item.approval_id))),
            title=call_title(tool, arguments or {}),
            kind=KINDS.get(tool, "other"),
            status="pending",
            content=[*content(escaped_text(f"{item.reason}\n{text}"))],
            locations=self._locations(arguments or {}),
            raw_input=arguments,
        )
        match await self._permission(call, options):
            case "allow":
                await wait.run.approve(item.approval_id, self._by)
            case "reject":
                await wait.run.deny(item.approval_id, self._by, "denied in the editor")
            case _:
                return False
        return True

    async def _ask_question(self, wait: OpenWait) -> bool:
        """Ask a question, and return whether it was answered."""
        wait_id = wait.wait.wait_id
        asked = schema.ToolCallUpdate(
            tool_call_id=f"{wait.run.id}-{wait_id}",
            title=one_line(wait.wait.question, 1_000),
            kind="other",
            status="pending",
            content=[*content(harmless(wait.wait.question))],
        )
        if wait.wait.kind != "answer":
            options = [PermissionChoice(choice, *CHOICES[choice]) for choice in wait.wait.choices if choice in CHOICES]
            if (chosen := await self._permission(asked, options)) in CHOICES:
                await wait.run.resolve_escalation(wait_id, cast("Choice", chosen), by=self._by)
            return bool(chosen)
        answer = ""
        if self._has_forms:
            answer = await self._form_answer(wait)
        elif wait.options:
            options = [PermissionChoice(str(at), name, "allow_once") for at, name in enumerate(wait.options)]
            chosen = await self._permission(asked, options)
            answer = wait.options[int(chosen)] if chosen else ""
        if not answer:
            self._question = wait
            return False
        await wait.run.answer(answer, wait_id, self._by)
        return True

    async def _permission(self, call: schema.ToolCallUpdate, choices: "list[PermissionChoice]") -> str:
        """Return the id of the chosen option, or "" if the client chose none."""
        options = [
            schema.PermissionOption(option_id=each.id, name=one_line(each.name), kind=each.kind) for each in choices
        ]
        try:
            outcome = (await self._client.request_permission(self._session.id, call, options)).outcome
        except (RequestError, ValidationError, ConnectionError):  # the client cannot ask
            return ""
        chosen = outcome.option_id if isinstance(outcome, schema.AllowedOutcome) else ""
        return chosen if any(chosen == each.id for each in choices) else ""

    async def _form_answer(self, wait: OpenWait) -> str:
        """Return what the person wrote into a form, or "" if the person closed it."""
        asked = schema.ElicitationStringPropertySchema(type="string", title="Answer", enum=wait.options or None)
        form = schema.ElicitationSchema(type="object", properties={"answer": asked}, required=["answer"])
        mode = schema.ElicitationFormSessionMode(session_id=self._session.id, requested_schema=form)
        try:
            answer = await self._client.create_elicitation(harmless(wait.wait.question), mode)
        except (RequestError, ValidationError, ConnectionError):
            return ""
        given = (answer.content or {}) if isinstance(answer, schema.AcceptElicitationResponse) else {}
        return str(given.get("answer") or "").strip()

    async def _answer_question(self, prompt: Prompt) -> bool:
        """Take a prompt as the answer to the question that was shown as text. Return False if there is none."""
        if (wait := self._question) is None or (turn := self._view.turn) is None:
            return False
        self._question = None
        try:
            await wait.run.answer(prompt.text.strip(), wait.wait.wait_id, self._by)
        except Refused as error:
            if not any(each.wait.wait_id == wait.wait.wait_id for each in await open_waits(self._session)):
                return False  # somebody else has answered it
            self._question = wait
            await self._say(f"Not answered: {error}\n")
            prompt.end("end_turn")
        prompt.turn = turn.number
        return True


@dataclass(frozen=True)
class PermissionChoice:
    """An option of a question to the person. None of them lasts for longer than this question."""

    id: str
    name: str
    kind: schema.PermissionOptionKind


def call_title(tool: str, arguments: dict[str, Any]) -> str:
    """Return a call on one line: the tool, and what it is about."""
    first = next((value for value in arguments.values() if isinstance(value, str)), "")
    return one_line(f"{tool} {first}".strip(), 120)


def plan_entries(plan: Plan) -> list[schema.PlanEntry]:
    """Return the steps of a plan. A step whose dependencies are done counts as the one in progress."""
    steps: list[dict[str, Any]] = (plan.as_status() or {"steps": []})["steps"]
    done = {step["id"] for step in steps if step.get("status") == "done"}
    found = list[schema.PlanEntry]()
    for step in steps:
        is_over = step.get("status") in {"done", "failed"}
        status = (
            "completed" if is_over else "in_progress" if done.issuperset(step.get("depends_on") or ()) else "pending"
        )
        failed = " (failed)" if step.get("status") == "failed" else ""
        text = one_line(f"{step.get('skill', '')}: {step.get('goal', '')}{failed}", 500)
        found.append(helpers.plan_entry(text, status=status))
    return found
