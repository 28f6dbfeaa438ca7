"""One session of an editor: its prompts, what happens in it as updates, and what the person is asked."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from acp import RequestError, helpers, schema
from acp.agent.connection import AgentSideConnection
from pydantic import ValidationError
from pydantic_core import from_json
from temporalio.service import RPCError

from orga.client.errors import NotTakenYet, OrgaError, Refused, ServerLost
from orga.client.frontends.reach import OpenWait, Reach, held_arguments, open_waits
from orga.client.frontends.turns import (
    Begun,
    CallBegun,
    CallEnded,
    CallMade,
    Over,
    Step,
    Text,
    TurnFold,
    TurnProgress,
    Waiting,
    completed,
    read_past,
    turn_steps,
)
from orga.client.journal.run_view import Plan
from orga.client.runs.agents import AgentHandle
from orga.client.runs.sessions import SessionHandle
from orga.workflows.types.questions import Item
from orga.workflows.types.text import escaped_text, one_line

RESENDS = 5
"""Repetitions of a message that no worker has confirmed. Its id makes it count once."""

REFUSED = -32602
"""The protocol's code for a request that cannot be carried out as it is."""

KINDS: dict[str, schema.ToolKind] = {
    **{"read_file": "read", "list_files": "search", "search_text": "search", "recall_knowledge": "search"},
    **{"fetch_url": "fetch", "read_issue": "fetch", "read_pull_request": "fetch"},
    **{"write_file": "edit", "edit_file": "edit", "run_command": "execute"},
}
PATH_ARGUMENTS = ("path", "file", "folder")

STOP_REASONS: dict[str, schema.StopReason] = {
    **{"max_iterations": "max_turn_requests", "max_tokens": "max_tokens"},
    **{"interrupted": "cancelled", "aborted": "cancelled"},
}
"""How a turn ends for the client. All other reasons are `end_turn`: a `refusal` would remove the turn there."""

Options = Mapping[str, tuple[str, schema.PermissionOptionKind]]
"""Names and kinds of what a person can choose, by id. None of them lasts for longer than the question."""

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Return text of a model without characters that a terminal acts on, or that reorder what a person reads."""
    return _HIDDEN.sub("\ufffd", text.replace("\r\n", "\n"))


def content(text: str) -> list[schema.ContentToolCallContent]:
    return [helpers.tool_content(helpers.text_block(text))] if text else []


@dataclass(eq=False)
class EditorPrompt:
    """A prompt that the client waits for."""

    text: str
    turn: int = 0
    """0 until the session has accepted it, and in a run that is no session."""
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


class AcpSession:
    """Follows one run for the client."""

    def __init__(
        self,
        client: AgentSideConnection,
        reach: Reach,
        run: AgentHandle,
        folder: Path,
        *,
        has_forms: bool,
        goal_of: str = "",
    ) -> None:
        """`goal_of` is the agent of a goal that the first prompt starts."""
        self._client, self._reach, self._run, self._folder = client, reach, run, folder
        self._has_forms, self._goal_of = has_forms, goal_of
        self._fold = TurnFold(run.id, None)
        self._is_shown = False
        self._sent = dict[tuple[int, bool], str]()
        """The part that the client has of a text whose end is not known, by iteration and whether it is thinking."""
        self._answer = ""
        self._ended = dict[int, schema.StopReason]()
        self._prompts = set[EditorPrompt]()
        self._sending = asyncio.Lock()
        self._asked = dict[str, asyncio.Task[None]]()
        """By the id of what the client is asked. Without a decision it is asked again with the next prompt."""
        self._question: OpenWait | None = None
        """The question that was shown as text. The next prompt answers it."""
        self._tasks = set[asyncio.Task[None]]()
        self._has_ended = False

    async def begin(self, *, shows_past: bool) -> None:
        """Read the past, and show it to the client if that is wanted. Then follow the run in the background."""
        self._is_shown = shows_past
        for entry in await read_past(self._run):
            for step in self._fold.take(entry):
                await self._take(await completed(self._run, step) if shows_past else step)
        self._is_shown = True
        self._start(self._follow())

    def stop(self, why: str) -> None:
        """Stop following. The run goes on."""
        for task in (*self._tasks, *self._asked.values()):
            task.cancel()
        self._end_all(RequestError(REFUSED, f"{why}; the run goes on as session {self._run.id}"))

    async def prompt(self, text: str, message_id: str) -> schema.StopReason:
        """Send a message, or answer the question that was shown as text, and wait until the turn has ended."""
        if self._has_ended:
            raise self._end_error()
        prompt = EditorPrompt(text)
        self._prompts.add(prompt)
        try:
            async with self._sending:  # prompts keep their order
                if not await self._answer_question(prompt):
                    prompt.turn = await self._send_message(text, message_id)
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
        if not isinstance(self._run, SessionHandle):
            if self._prompts:
                await self._run.abort("cancelled in the editor", by=self._reach.by)
        elif (turn := self._fold.view.turn) and not turn.reason:
            await self._interrupt(turn.number)

    async def _send_message(self, text: str, message_id: str) -> int:
        """Return the turn of the message, or 0 in a run that is no session."""
        if self._goal_of:
            await self._reach.start("goal", self._goal_of, text, self._run.id)
            self._goal_of = ""
            await self.begin(shows_past=False)
        elif not isinstance(self._run, SessionHandle):
            await self._run.steer(text, by=self._reach.by, intervention_id=message_id)
        else:
            for _ in range(RESENDS):
                with suppress(NotTakenYet, ServerLost):
                    return await self._run.post(text, message_id=message_id, by=self._reach.by)
            return await self._run.post(text, message_id=message_id, by=self._reach.by)
        return 0

    async def _interrupt(self, turn: int) -> None:
        with suppress(Refused):  # it has ended, or it is interrupted when it begins
            await cast("SessionHandle", self._run).interrupt("cancelled in the editor", turn=turn, by=self._reach.by)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end_all(self, reason: schema.StopReason | Exception, turn: int | None = None) -> None:
        for prompt in self._prompts:
            if turn in (None, prompt.turn):
                prompt.end(reason)

    def _end_error(self) -> RequestError:
        return RequestError(REFUSED, f"session {self._run.id} has ended. Start a new one")

    async def _send(self, update: Any) -> None:
        if self._is_shown:
            with suppress(ConnectionError):  # the client has gone
                await self._client.session_update(self._run.id, update)

    async def _say(self, text: str) -> None:
        if text:
            await self._send(helpers.update_agent_message_text(harmless(text)))

    async def _follow(self) -> None:
        reason: Exception = self._end_error()
        try:
            async for step in turn_steps(self._run, self._fold, []):
                await self._take(step)
        except (OrgaError, RPCError) as error:
            reason = RequestError(REFUSED, str(error))
        self._has_ended = True
        self._end_all(reason)

    async def _take(self, step: Step) -> None:
        """Show a step. The texts and calls of delegates are no part of the conversation."""
        match step:
            case Begun():
                if all(prompt.text.strip() != step.message.strip() for prompt in self._prompts):
                    await self._send(helpers.update_user_message_text(harmless(step.message)))
                if any(prompt.is_cancelled and prompt.turn == step.turn for prompt in self._prompts) and step.turn:
                    await self._interrupt(step.turn)
            case Text(run=""):
                await self._show_text(step)
            case CallMade(run=""):
                arguments = from_json(step.arguments)
                await self._send(
                    helpers.start_tool_call(
                        step.place,
                        call_title(step.tool, arguments),
                        kind=KINDS.get(step.tool, "other"),
                        status="pending",
                        locations=self._locations(arguments),
                        raw_input=arguments,
                    )
                )
            case CallBegun(run="") if step.place:
                await self._send(helpers.update_tool_call(step.place, status="in_progress"))
            case CallEnded(run=""):
                status = "completed" if step.outcome == "ok" else "failed"
                shown = content(harmless(step.text)) or None
                await self._send(helpers.update_tool_call(step.place, status=status, content=shown))
            case TurnProgress(is_plan=True):
                await self._send(helpers.update_plan(plan_entries(self._fold.view.plan)))
            case Waiting():
                self._ask(step.waits)
            case Over():
                await self._end_turn(step)
            case _:
                pass

    async def _show_text(self, step: Text) -> None:
        """Send what is new of a text. After a failed attempt, one that does not continue is repeated as a whole."""
        key = step.iteration, step.is_thinking
        sent = self._sent.get(key, "")
        if step.text.startswith(sent):
            new, self._sent[key] = step.text[len(sent) :], step.text
        else:
            new = f"\n\n{step.text}" if step.is_whole else ""
        if step.is_whole:
            self._sent.pop(key, None)
            self._answer = step.text if step.is_answer else ""
        if new and step.is_thinking:
            await self._send(helpers.update_agent_thought_text(harmless(new)))
        else:
            await self._say(new)

    async def _end_turn(self, over: Over) -> None:
        if over.output != self._answer:  # no reply of the model was the answer
            await self._say(over.output)
        if over.reason not in {"completed", "interrupted"}:
            await self._say(f"\n\n(The turn ended: {over.reason}{f', {over.detail}' if over.detail else ''})")
        self._answer, self._question = "", None
        self._ask([])
        ending = self._ended[over.turn] = STOP_REASONS.get(over.reason, "end_turn")
        self._end_all(ending, over.turn)

    def _locations(self, arguments: dict[str, Any]) -> list[schema.ToolCallLocation] | None:
        paths = [arguments.get(name) for name in PATH_ARGUMENTS]
        inside = [self._folder / path for path in paths if isinstance(path, str) and path]
        return [schema.ToolCallLocation(path=harmless(str(path))) for path in inside] or None

    async def _ask_open(self) -> None:
        with suppress(OrgaError, RPCError):  # without a worker nothing can be decided
            self._ask(await open_waits(self._run))

    def _ask(self, waits: list[OpenWait]) -> None:
        """Ask the client about everything that waits, and that it was not asked about yet. Withdraw what is decided."""
        asks = dict[str, tuple[OpenWait, Callable[[], Awaitable[bool]]]]()
        for wait in waits:
            asks |= {item.approval_id: (wait, partial(self._ask_about_call, wait, item)) for item in wait.calls}
            if not wait.calls:
                asks[wait.wait.wait_id] = wait, partial(self._ask_question, wait)
        for key in self._asked.keys() - asks:
            self._asked.pop(key).cancel()
        for key in asks.keys() - self._asked:
            self._asked[key] = asyncio.create_task(self._decide(*asks[key]))

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
        options = f" ({one_line(' / '.join(wait.options), 1_000)})" if wait.options else ""
        how = "Your next message answers it" if self._question is wait else "It waits in `orga inbox`"
        await self._say(f"\n\n{one_line(wait.wait.question, 1_000)}{options}\n\n{why}{how}.\n")
        if all(task.done() or task is asyncio.current_task() for task in self._asked.values()):
            self._end_all("end_turn")

    async def _ask_about_call(self, wait: OpenWait, item: Item) -> bool:
        """Ask about one held call, and return whether it was decided."""
        arguments, tool = held_arguments(item), str(item.call.get("name", ""))
        options: Options = {"reject": ("Deny", "reject_once")}
        text = "The arguments are too long to show here. See: orga approve --show"
        if arguments is not None:
            options = {"allow": ("Allow this call once", "allow_once"), **options}
            text = json.dumps(arguments, indent=1, ensure_ascii=False)
        call = schema.ToolCallUpdate(
            tool_call_id=item.place if wait.run.id == self._run.id else f"{wait.run.id}/{item.place}",
            title=call_title(tool, arguments or {}),
            kind=KINDS.get(tool, "other"),
            status="pending",
            content=[*content(escaped_text(f"{item.reason}\n{text}"))],
            locations=self._locations(arguments or {}),
            raw_input=arguments,
        )
        match await self._permission(call, options):
            case "allow":
                await wait.run.approve(item.approval_id, self._reach.by)
            case "reject":
                await wait.run.deny(item.approval_id, self._reach.by, "denied in the editor")
            case _:
                return False
        return True

    async def _ask_question(self, wait: OpenWait) -> bool:
        """Ask a question, and return whether it was answered. The inbox has the other waits."""
        if wait.wait.kind != "answer":
            return False
        wait_id, answer = wait.wait.wait_id, ""
        if self._has_forms:
            answer = await self._form_answer(wait)
        elif wait.options:
            asked = schema.ToolCallUpdate(
                tool_call_id=f"{wait.run.id}/{wait_id}",
                title=one_line(wait.wait.question, 1_000),
                kind="other",
                status="pending",
                content=[*content(harmless(wait.wait.question))],
            )
            options: Options = {str(at): (text, "allow_once") for at, text in enumerate(wait.options)}
            chosen = await self._permission(asked, options)
            answer = wait.options[int(chosen)] if chosen else ""
        if not answer:
            self._question = wait
            return False
        await wait.run.answer(answer, wait_id, self._reach.by)
        return True

    async def _permission(self, call: schema.ToolCallUpdate, options: Options) -> str:
        """Return the id of the chosen option, or "" if the client chose none."""
        offered = [
            schema.PermissionOption(option_id=key, name=one_line(name), kind=kind)
            for key, (name, kind) in options.items()
        ]
        try:
            outcome = (await self._client.request_permission(self._run.id, call, offered)).outcome
        except (RequestError, ValidationError, ConnectionError):  # the client cannot ask
            return ""
        chosen = outcome.option_id if isinstance(outcome, schema.AllowedOutcome) else ""
        return chosen if chosen in options else ""

    async def _form_answer(self, wait: OpenWait) -> str:
        """Return what the person wrote into a form, or "" if the person closed it."""
        asked = schema.ElicitationStringPropertySchema(type="string", title="Answer", enum=wait.options or None)
        form = schema.ElicitationSchema(type="object", properties={"answer": asked}, required=["answer"])
        mode = schema.ElicitationFormSessionMode(session_id=self._run.id, requested_schema=form)
        try:
            answer = await self._client.create_elicitation(harmless(wait.wait.question), mode)
        except (RequestError, ValidationError, ConnectionError):
            return ""
        given = (answer.content or {}) if isinstance(answer, schema.AcceptElicitationResponse) else {}
        return str(given.get("answer") or "").strip()

    async def _answer_question(self, prompt: EditorPrompt) -> bool:
        """Take a prompt as the answer to the question that was shown as text. Return False if there is none."""
        if (wait := self._question) is None:
            return False
        self._question = None
        try:
            await wait.run.answer(prompt.text.strip(), wait.wait.wait_id, self._reach.by)
        except Refused as error:
            if not any(each.wait.wait_id == wait.wait.wait_id for each in await open_waits(self._run)):
                return False  # somebody else has answered it
            self._question = wait
            await self._say(f"Not answered: {error}\n")
            prompt.end("end_turn")
        prompt.turn = turn.number if (turn := self._fold.view.turn) else 0
        return True


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
