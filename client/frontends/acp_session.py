"""One session of an editor: its prompts, what happens in it as updates, and what the person is asked."""

import asyncio
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from acp import RequestError, helpers, schema
from pydantic import ValidationError
from pydantic_core import from_json
from temporalio.service import RPCError

from orga.client.errors import NotTakenYet, OrgaError, Refused, ServerLost
from orga.client.frontends import turns
from orga.client.frontends.reach import OpenWait, Reach, held_arguments, open_waits
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

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Return text of a model without characters that a terminal acts on, or that reorder what a person reads."""
    return _HIDDEN.sub("\ufffd", text.replace("\r\n", "\n"))


def content(text: str) -> list[Any] | None:
    return [helpers.tool_content(helpers.text_block(text))] if text else None


@dataclass(eq=False)
class EditorPrompt:
    """A prompt that the client waits for."""

    text: str
    ending: "asyncio.Future[schema.StopReason]"
    turn: int = 0
    """0 until the session has accepted it, and in a run that is no session."""
    is_cancelled: bool = False


@dataclass
class Editor:
    """The client of a connection."""

    reach: Reach
    folder: Path
    client: Any = None
    """The connection, once there is one."""
    has_forms: bool = False
    """Whether it can show a form to the person."""


class AcpSession:
    """Follows one run for the client."""

    def __init__(self, editor: Editor, run: AgentHandle, goal_of: str = "") -> None:
        """`goal_of` is the agent of a goal that the first prompt starts."""
        self._editor, self._run, self._goal_of, self._by = editor, run, goal_of, editor.reach.by
        self._fold = turns.TurnFold(run.id, None)
        self._tasks = list[asyncio.Task[None]]()
        self._failure: RequestError | None = None
        """The reason why no prompt is taken any more."""
        self._ended = dict[int, schema.StopReason]()
        self._prompts = set[EditorPrompt]()
        self._sending = asyncio.Lock()
        self._asked = dict[str, asyncio.Task[None]]()
        """By the id of what the client is asked. Without a decision it is asked again with the next prompt."""
        self._question: OpenWait | None = None
        """The question that was shown as text. The next prompt answers it."""

    async def begin(self, *, shows_past: bool) -> None:
        """Read the past, and show it to the client if that is wanted. Then follow the run in the background."""
        for entry in await turns.read_past(self._run):
            for step in self._fold.take(entry):
                if shows_past:
                    await self._take(await turns.completed(self._run, step))
                elif isinstance(step, turns.Over):
                    self._ended[step.turn] = STOP_REASONS.get(step.reason, "end_turn")
        self._tasks.append(asyncio.create_task(self._follow()))

    def stop(self, why: str) -> None:
        """Stop following. The run goes on."""
        for task in (*self._tasks, *self._asked.values()):
            task.cancel()
        self._end(RequestError(REFUSED, f"{why}; the run goes on as session {self._run.id}"))

    async def prompt(self, text: str, message_id: str) -> schema.StopReason:
        """Send a message, or answer the question that was shown as text, and wait until the turn has ended."""
        if self._failure:
            raise self._failure
        prompt = EditorPrompt(text, asyncio.get_running_loop().create_future())
        self._prompts.add(prompt)
        try:
            async with self._sending:  # prompts keep their order
                self._asked = {key: task for key, task in self._asked.items() if not task.done()}
                self._fold.pause_s = turns.QUIET_S  # ask again what waits
                prompt.turn = await self._send(text, message_id)
            if prompt.is_cancelled:
                await self._interrupt(prompt.turn)
            if prompt.turn in self._ended:
                self._end(self._ended[prompt.turn], prompt.turn)
            return await prompt.ending
        finally:
            self._prompts.discard(prompt)

    async def cancel(self) -> None:
        """Interrupt the current turn, and those of all prompts that the client waits for once they begin."""
        for prompt in self._prompts:
            prompt.is_cancelled = True
        if not isinstance(self._run, SessionHandle):
            if self._prompts:
                await self._run.abort("cancelled in the editor", by=self._by)
        elif (turn := self._fold.view.turn) and not turn.reason:
            await self._interrupt(turn.number)

    async def _send(self, text: str, message_id: str) -> int:
        """Send a prompt, and return its turn, or 0 in a run that is no session."""
        if self._question and await self._answer(self._question, text):
            return self._fold.view.turn.number if self._fold.view.turn else 0
        if self._goal_of:
            await self._editor.reach.start("goal", self._goal_of, text, self._run.id)
            self._goal_of = ""
            await self.begin(shows_past=False)
        elif not isinstance(self._run, SessionHandle):
            await self._run.steer(text, by=self._by, intervention_id=message_id)
        else:
            post = partial(self._run.post, text, message_id=message_id, by=self._by)
            for _ in range(RESENDS):
                with suppress(NotTakenYet, ServerLost):
                    return await post()
            return await post()
        return 0

    async def _answer(self, wait: OpenWait, text: str) -> bool:
        """Answer the question that was shown as text. Return False if somebody else has answered it."""
        self._question = None
        try:
            await wait.run.answer(text.strip(), wait.wait.wait_id, self._by)
        except Refused:
            if any(each.wait.wait_id == wait.wait.wait_id for each in await open_waits(self._run)):
                self._question = wait
                raise
            return False
        return True

    async def _interrupt(self, turn: int) -> None:
        if isinstance(self._run, SessionHandle):
            with suppress(Refused):  # it has ended, or it is interrupted when it begins
                await self._run.interrupt("cancelled in the editor", turn=turn, by=self._by)

    def _end(self, reason: schema.StopReason | Exception, turn: int | None = None) -> None:
        """Answer the prompts of a turn, or all that the client waits for."""
        for prompt in self._prompts:
            if turn not in (None, prompt.turn) or prompt.ending.done():
                continue
            if isinstance(reason, Exception):
                prompt.ending.set_exception(reason)
            else:
                prompt.ending.set_result("cancelled" if prompt.is_cancelled else reason)

    async def _update(self, update: Any) -> None:
        with suppress(ConnectionError):  # the client has gone
            await self._editor.client.session_update(self._run.id, update)

    async def _say(self, text: str) -> None:
        if text:
            await self._update(helpers.update_agent_message_text(harmless(text)))

    async def _follow(self) -> None:
        problem = f"session {self._run.id} has ended. Start a new one"
        try:
            async for step in turns.turn_steps(self._run, self._fold, []):
                await self._take(step)
        except (OrgaError, RPCError) as error:
            problem = str(error)
        self._failure = RequestError(REFUSED, problem)
        self._end(self._failure)

    async def _take(self, step: turns.Step) -> None:
        """Show a step. The texts and calls of delegates are no part of the conversation."""
        match step:
            case turns.Begun():
                if all(prompt.text.strip() != step.message.strip() for prompt in self._prompts):
                    await self._update(helpers.update_user_message_text(harmless(step.message)))
                if any(prompt.is_cancelled and prompt.turn == step.turn for prompt in self._prompts):
                    await self._interrupt(step.turn)
            case turns.Text(run="", is_thinking=True) if step.new:
                await self._update(helpers.update_agent_thought_text(harmless(step.new)))
            case turns.Text(run="", is_thinking=False):
                await self._say(step.new)
            case turns.CallMade(run=""):
                shown = self._shown_call(step.tool, from_json(step.arguments))
                await self._update(helpers.start_tool_call(step.place, **shown))
            case turns.CallBegun(run="") if step.place:
                await self._update(helpers.update_tool_call(step.place, status="in_progress"))
            case turns.CallEnded(run=""):
                status = "completed" if step.outcome == "ok" else "failed"
                shown = content(harmless(step.text))
                await self._update(helpers.update_tool_call(step.place, status=status, content=shown))
            case turns.TurnProgress(is_plan=True):
                await self._update(helpers.update_plan(plan_entries(self._fold.view.plan)))
            case turns.Waiting():
                self._ask(step.waits)
            case turns.Over():
                await self._end_turn(step)
            case _:
                pass

    async def _end_turn(self, over: turns.Over) -> None:
        await self._say(over.new_output)
        if over.reason not in {"completed", "interrupted"}:
            await self._say(f"\n\n(The turn ended: {over.reason}{f', {over.detail}' if over.detail else ''})")
        self._question = None
        self._ask([])
        self._ended[over.turn] = STOP_REASONS.get(over.reason, "end_turn")
        self._end(self._ended[over.turn], over.turn)

    def _shown_call(self, tool: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
        """Return what a call shows: the tool, what it is about, and its files."""
        texts = {name: value for name, value in (arguments or {}).items() if value and isinstance(value, str)}
        paths = [self._editor.folder / texts[name] for name in PATH_ARGUMENTS if name in texts]
        return {
            "title": one_line(" ".join([tool, *texts.values()][:2]), 120),
            "kind": KINDS.get(tool, "other"),
            "status": "pending",
            "locations": [schema.ToolCallLocation(path=harmless(str(path))) for path in paths] or None,
            "raw_input": arguments,
        }

    def _ask(self, waits: list[OpenWait]) -> None:
        """Ask the client about everything that waits, and that it was not asked about yet. Withdraw what is decided."""
        asks = dict[str, tuple[OpenWait, Item | None]]()
        for wait in waits:
            calls = {item.approval_id: (wait, item) for item in wait.calls}
            asks |= calls or {wait.wait.wait_id: (wait, None)}
        for key in self._asked.keys() - asks:
            self._asked.pop(key).cancel()
        for key in asks.keys() - self._asked:
            self._asked[key] = asyncio.create_task(self._decide(*asks[key]))

    async def _decide(self, wait: OpenWait, item: Item | None) -> None:
        """Ask, and record the decision. Without one, show how to decide it, and let the client go on."""
        why, is_question = "", wait.wait.kind == "answer"
        try:
            with suppress(RequestError, ValidationError, ConnectionError):  # the client cannot ask
                if item and await self._ask_about_call(wait, item):
                    return
                if is_question and await self._ask_question(wait):
                    return
        except (OrgaError, RPCError) as error:
            why = f"Not decided: {error}. "
        if any(prompt.is_cancelled for prompt in self._prompts):
            return
        self._question = wait if is_question else self._question
        options = f" ({one_line(' / '.join(wait.options), 1_000)})" if wait.options else ""
        how = "Your next message answers it" if is_question else "It waits in `orga inbox`"
        await self._say(f"\n\n{one_line(wait.wait.question, 1_000)}{options}\n\n{why}{how}.\n")
        if all(task.done() or task is asyncio.current_task() for task in self._asked.values()):
            self._end("end_turn")

    async def _ask_about_call(self, wait: OpenWait, item: Item) -> bool:
        """Ask about one held call, and return whether it was decided."""
        arguments = held_arguments(item)
        options = [schema.PermissionOption(option_id="reject", name="Deny", kind="reject_once")]
        text = "The arguments are too long to show here. See: orga approve --show"
        if arguments is not None:
            allow = schema.PermissionOption(option_id="allow", name="Allow this call once", kind="allow_once")
            options = [allow, *options]
            text = json.dumps(arguments, indent=1, ensure_ascii=False)
        call = schema.ToolCallUpdate(
            tool_call_id=item.place if wait.run.id == self._run.id else f"{wait.run.id}/{item.place}",
            content=content(escaped_text(f"{item.reason}\n{text}")),
            **self._shown_call(str(item.call.get("name", "")), arguments),
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
        """Ask a question in a form or as a list of options, and return whether it was answered."""
        question, answer = wait.wait.question, ""
        if self._editor.has_forms:
            asked = schema.ElicitationStringPropertySchema(type="string", title="Answer", enum=wait.options or None)
            form = schema.ElicitationSchema(type="object", properties={"answer": asked}, required=["answer"])
            mode = schema.ElicitationFormSessionMode(session_id=self._run.id, requested_schema=form)
            filled = await self._editor.client.create_elicitation(harmless(question), mode)
            given = (filled.content or {}) if isinstance(filled, schema.AcceptElicitationResponse) else {}
            answer = str(given.get("answer") or "").strip()
        elif wait.options:
            call = schema.ToolCallUpdate(
                tool_call_id=f"{wait.run.id}/{wait.wait.wait_id}",
                title=one_line(question, 1_000),
                kind="other",
                status="pending",
                content=content(harmless(question)),
            )
            options = [
                schema.PermissionOption(option_id=str(at), name=one_line(text), kind="allow_once")
                for at, text in enumerate(wait.options)
            ]
            chosen = await self._permission(call, options)
            answer = wait.options[int(chosen)] if chosen else ""
        if answer:
            await wait.run.answer(answer, wait.wait.wait_id, self._by)
        return bool(answer)

    async def _permission(self, call: schema.ToolCallUpdate, options: list[schema.PermissionOption]) -> str:
        """Return the id of the chosen option, or "" if there is none. No option lasts for longer than the question."""
        outcome = (await self._editor.client.request_permission(self._run.id, call, options)).outcome
        chosen = outcome.option_id if isinstance(outcome, schema.AllowedOutcome) else ""
        return chosen if any(option.option_id == chosen for option in options) else ""


def plan_entries(plan: Plan) -> list[schema.PlanEntry]:
    """Return the steps of a plan. A step whose dependencies are done counts as the one in progress."""
    steps: list[dict[str, Any]] = (plan.as_status() or {"steps": []})["steps"]
    done = {step["id"] for step in steps if step.get("status") == "done"}
    found = list[schema.PlanEntry]()
    for step in steps:
        is_failed, is_ready = step.get("status") == "failed", done.issuperset(step.get("depends_on") or ())
        is_over = is_failed or step["id"] in done
        status = "completed" if is_over else "in_progress" if is_ready else "pending"
        text = f"{step.get('skill', '')}: {step.get('goal', '')}{' (failed)' if is_failed else ''}"
        found.append(helpers.plan_entry(one_line(text, 500), status=status))
    return found
