"""The Agent Client Protocol: an editor talks with an agent over standard input and output.

A session of the protocol is a session of orga, and a prompt is a turn. A goal, or any other run, can be loaded as a
session, too. A prompt then guides it. All state is in the run. So if this process dies, the run goes on, and another
process can load the session with all its open questions.
"""

import asyncio
import json
from collections import defaultdict
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Self
from urllib.parse import unquote

from acp import PROTOCOL_VERSION, RequestError, helpers, schema
from acp.agent.connection import AgentSideConnection
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json
from temporalio.service import RPCError

from orga.activities.media import MAX_FRONTEND_MESSAGE_BYTES, Media
from orga.activities.text.characters import harmless_text
from orga.client.errors import OrgaError, Refused, RunEnded, RunNotFound
from orga.client.frontends import turns
from orga.client.frontends.reach import OpenWait, Reach, converts_errors, held_arguments
from orga.client.runs.agents import AgentHandle, new_run_id
from orga.client.runs.attachments import inline_media, message_with_media
from orga.client.runs.listing import RunFilter, listed_runs, read_first_message, with_details
from orga.client.runs.sessions import SessionHandle
from orga.workflows.types.names import GOAL_WORKFLOW, SESSION_WORKFLOW
from orga.workflows.types.questions import Item
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.text import clean_text, escaped_text, one_line

LISTED_SESSIONS = 50

# error codes of JSON-RPC and of the protocol
INVALID_MESSAGE = -32600
REFUSED = -32602  # the request cannot be carried out as it is
NOT_FOUND = -32002

KINDS: dict[str, schema.ToolKind] = {
    "read_file": "read",
    "list_files": "search",
    "search_text": "search",
    "recall_knowledge": "search",
    "fetch_url": "fetch",
    "read_issue": "fetch",
    "read_pull_request": "fetch",
    "write_file": "edit",
    "edit_file": "edit",
    "run_command": "execute",
}
"""The kind that the client shows for each built-in tool. All other tools are `other`."""

ALLOW = schema.PermissionOption(option_id="allow", name="Allow this call once", kind="allow_once")
DENY = schema.PermissionOption(option_id="reject", name="Deny", kind="reject_once")


async def serve(
    reach: Reach, agent: str, folder: Path, pipes: tuple[BinaryIO, BinaryIO], *, starts_goals: bool
) -> None:
    """Serve a client until it closes the input. The runs then go on.

    New sessions use `agent`, which acts in `folder`. With `starts_goals`, the first prompt of a session is a goal.
    """
    lines = await _JsonLines.over(*pipes)
    connect: Any = partial(AcpAgent, reach, agent, folder, starts_goals=starts_goals)
    async with AgentSideConnection(connect, lines, listening=False, use_unstable_protocol=True) as connection:
        await connection.listen()


_explained = converts_errors(
    lambda error: RequestError(NOT_FOUND if isinstance(error, RunNotFound) else REFUSED, str(error))
)


class AcpAgent:
    """One client's connection. Its methods are those of the protocol."""

    def __init__(self, reach: Reach, agent: str, folder: Path, client: Any, *, starts_goals: bool) -> None:
        self._reach, self._agent, self._folder, self._client = reach, agent, folder, client
        self._starts_goals = starts_goals
        self._sessions: dict[str, AcpSession] = {}

    async def initialize(self, **_: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=schema.Implementation(name="orga", title=f"orga: {self._agent}", version="0.1.0"),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
                session_capabilities=schema.SessionCapabilities.model_validate({"list": {}, "resume": {}, "close": {}}),
            ),
        )

    @_explained
    async def new_session(self, cwd: str, **_: Any) -> schema.NewSessionResponse:
        self._require_folder(cwd)
        if self._starts_goals:
            run = AgentHandle(self._reach.client, new_run_id(None, "goal"))  # the first prompt starts it
        else:
            run = await self._reach.start("session", self._agent)
        await self._open(run, goal_agent=self._agent if self._starts_goals else "")
        return schema.NewSessionResponse(session_id=run.id)

    @_explained
    async def load_session(self, cwd: str, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        """Open a session, and show its conversation to the client."""
        self._require_folder(cwd)
        await self._open(await self._reach.open(session_id))
        return schema.LoadSessionResponse()

    @_explained
    async def resume_session(self, cwd: str, session_id: str, **_: Any) -> schema.ResumeSessionResponse:
        """Open a session whose conversation the client still has."""
        self._require_folder(cwd)
        await self._open(await self._reach.open(session_id), shows_past=False)
        return schema.ResumeSessionResponse()

    @_explained
    async def list_sessions(self, cwd: str | None = None, **_: Any) -> schema.ListSessionsResponse:
        client, folder = self._reach.client, cwd or str(self._folder)
        self._require_folder(folder)
        query = f"WorkflowType IN ('{SESSION_WORKFLOW}', '{GOAL_WORKFLOW}') AND {self._reach.runs_query}"
        wanted = RunFilter(running=True, tenant=self._reach.tenant, query=query)
        rows = await with_details(client, await listed_runs(client, wanted, LISTED_SESSIONS))
        firsts = await asyncio.gather(*(read_first_message(client, row.id) for row in rows))
        sessions = list[schema.SessionInfo]()
        for row, first in zip(rows, firsts, strict=True):
            title, updated = first or one_line(row.task), row.started.isoformat()
            sessions.append(schema.SessionInfo(session_id=row.id, cwd=folder, title=title, updated_at=updated))
        return schema.ListSessionsResponse(sessions=sessions)

    @_explained
    async def prompt(self, session_id: str, prompt: list[Any], **more: Any) -> schema.PromptResponse:
        session = self._session(session_id)
        text = clean_text("".join(map(block_text, prompt)))
        media = [file for file in map(block_media, prompt) if file is not None]
        client_message_id = str(more.get("messageId") or "").encode(errors="replace")
        message_id = sha256(client_message_id).hexdigest() if client_message_id else ""
        return schema.PromptResponse(stop_reason=await session.prompt(text, media, message_id))

    @_explained
    async def cancel(self, session_id: str, **_: Any) -> None:
        await self._session(session_id).cancel()

    @_explained
    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:
        """Interrupt the session's turn, and stop following it. It stays open in orga, so it can be loaded again."""
        await self._session(session_id).cancel()
        self._sessions.pop(session_id).stop()
        return schema.CloseSessionResponse()

    async def _open(self, run: AgentHandle, goal_agent: str = "", *, shows_past: bool = True) -> None:
        if earlier := self._sessions.pop(run.id, None):
            earlier.stop()
        session = self._sessions[run.id] = AcpSession(self._reach, self._folder, self._client, run, goal_agent)
        if not goal_agent:
            await session.begin(shows_past=shows_past)

    def _session(self, session_id: str) -> "AcpSession":
        if (session := self._sessions.get(session_id)) is None:
            raise RequestError(NOT_FOUND, f"session {one_line(session_id)!r} is not open here. Load it first")
        return session

    def _require_folder(self, cwd: str) -> None:
        if "\0" in cwd or not Path(cwd).resolve().is_relative_to(self._folder):
            problem = f"cwd: this agent acts in {self._folder}, not in {one_line(cwd, 500)}"
            raise InvalidInput(f"{problem}. Start `orga acp` in the folder of the project")


def block_media(block: Any) -> Media | None:
    """Return a part of a prompt that is a picture or a document, or None. Raise InvalidInput if it is not base64."""
    match block:
        case schema.ImageContentBlock():
            return inline_media(block.data, _file_name(block.uri or ""))
        case schema.EmbeddedResourceContentBlock(resource=schema.BlobResourceContents() as file):
            return inline_media(file.blob, _file_name(file.uri))
        case _:
            return None


def _file_name(uri: str) -> str:
    return unquote(uri).rpartition("/")[2]


def block_text(block: Any) -> str:
    """Return the text of a part of a prompt. Raise InvalidInput if it is a sound."""
    match block:
        case schema.TextContentBlock():
            return block.text
        case schema.ResourceContentBlock():
            return f"[{block.name}]({block.uri})"
        case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as file):
            return f"\n{file.uri}:\n{file.text}\n"
        case schema.ImageContentBlock() | schema.EmbeddedResourceContentBlock():
            return ""
        case _:
            raise InvalidInput("prompt: only texts, links, pictures and files are read. Remove the rest")


class AcpSession:
    """Follows one run for the client."""

    def __init__(self, reach: Reach, folder: Path, client: Any, run: AgentHandle, goal_agent: str) -> None:
        """Prepare a session. If its first prompt starts a goal, `goal_agent` is the goal's agent, else ""."""
        self._reach, self._folder, self._client, self._run, self._goal_agent = reach, folder, client, run, goal_agent
        self._fold = turns.TurnFold(run.id, None)
        self._is_silent = False
        self._turn = 0
        """The current turn, or the last one. It stays 0 in a run that is no session."""
        self._followers = list[asyncio.Task[None]]()
        self._sending = asyncio.Lock()
        self._endings = defaultdict[int, "asyncio.Future[schema.StopReason]"](asyncio.Future)
        """By turn: its stop reason, which a prompt waits for."""
        self._cancelled = set[int]()
        self._asked = dict[str, asyncio.Task[None]]()
        """Requests to the client, by the id of the held call or question. A prompt repeats the undecided ones."""
        self._question: OpenWait | None = None
        """The question that was shown as a text. The next prompt answers it."""

    async def begin(self, *, shows_past: bool = True) -> None:
        """Read the past, and show it to the client if `shows_past`. Then follow the run in the background."""
        self._is_silent = not shows_past
        for entry in await turns.read_past(self._run):
            for step in self._fold.take(entry):
                await self._take(await turns.with_recorded_texts(self._run, step))
        self._is_silent = False
        self._followers.append(asyncio.create_task(self._follow()))

    def stop(self) -> None:
        """Stop following. The run goes on."""
        for task in (*self._followers, *self._asked.values()):
            task.cancel()

    async def prompt(self, text: str, media: list[Media], message_id: str) -> schema.StopReason:
        """Send a message, or answer the question that was shown, and wait until the turn has ended."""
        async with self._sending:  # prompts keep their order
            self._asked = {key: task for key, task in self._asked.items() if not task.done()}
            self._fold.pause_s = turns.QUIET_S  # soon ask again about open questions
            ending = self._endings[await self._send(text, media, message_id)]
        if not ending.done() and any(follower.done() for follower in self._followers):
            raise Refused(f"session {self._run.id} is no longer followed. Load it to see the answer")
        return await ending

    async def cancel(self) -> None:
        """Interrupt the current turn. The turns of other prompts that wait are interrupted once they begin."""
        async with self._sending:
            self._cancelled |= {turn for turn, ending in self._endings.items() if not ending.done()}
        await self._interrupt()

    async def _interrupt(self, turn: int | None = None) -> None:
        with suppress(Refused, RunEnded):  # the turn has ended, or has not begun
            if isinstance(self._run, SessionHandle):
                await self._run.interrupt("cancelled in the editor", turn=turn, by=self._reach.by)
            elif self._cancelled:
                await self._run.abort("cancelled in the editor", by=self._reach.by)

    async def _send(self, text: str, media: list[Media], message_id: str) -> int:
        turn = self._turn
        takes_media = bool(self._goal_agent) or isinstance(self._run, SessionHandle)
        if media and (self._question or not takes_media):
            raise InvalidInput("prompt: answers and guidance have no pictures. Send only text")
        text, attachments = await message_with_media(text, media, self._reach.client)
        if question := self._question:
            self._endings.pop(turn, None)  # the turn goes on, though it ended for the client
            await question.run.answer(text.strip(), question.shown.wait_id, self._reach.by)
            if self._question is question:  # no other question was shown meanwhile
                self._question = None
        elif self._goal_agent:
            await self._reach.start("goal", self._goal_agent, text, self._run.id, attachments)
            self._goal_agent = ""
            await self.begin()
        elif isinstance(self._run, SessionHandle):
            return await self._run.post(text, message_id=message_id or None, by=self._reach.by, attachments=attachments)
        else:
            await self._run.steer(text, by=self._reach.by, intervention_id=message_id)
        return turn

    def _end(self, turn: int, reason: schema.StopReason) -> None:
        if not self._endings[turn].done():
            self._endings[turn].set_result("cancelled" if turn in self._cancelled else reason)

    async def _update(self, update: Any) -> None:
        with suppress(ConnectionError):  # the client has gone
            if not self._is_silent:
                await self._client.session_update(self._run.id, update)

    async def _show_text(self, text: str) -> None:
        if text:
            await self._update(helpers.update_agent_message_text(harmless_text(text)))

    async def _follow(self) -> None:
        try:
            async for step in turns.turn_steps(self._run, self._fold, []):
                await self._take(step)
        except (OrgaError, RPCError) as error:
            await self._show_text(f"\n\n({error})")
        finally:
            for turn in list(self._endings):
                self._end(turn, "cancelled")

    async def _take(self, step: turns.Step) -> None:
        """Show a step. Texts and calls of delegates are not shown."""
        match step:
            case turns.Begun():
                self._turn = step.turn
                if not self._sending.locked() and step.turn not in self._endings:  # the client shows its own prompts
                    await self._update(helpers.update_user_message_text(harmless_text(step.message)))
                if step.turn in self._cancelled:
                    await self._interrupt(step.turn)
            case turns.Text(run="") if step.new:
                show = helpers.update_agent_thought_text if step.is_thinking else helpers.update_agent_message_text
                await self._update(show(harmless_text(step.new)))
            case turns.CallMade(run=""):
                shown = self._shown_call(step.tool, from_json(step.arguments))
                await self._update(helpers.start_tool_call(step.place, **shown))
            case turns.CallBegun(run="") if step.place:
                await self._update(helpers.update_tool_call(step.place, status="in_progress"))
            case turns.CallEnded(run=""):
                self._question = None
                status = "completed" if step.outcome == "ok" else "failed"
                await self._update(helpers.update_tool_call(step.place, status=status, content=content(step.text)))
            case turns.TurnProgress(is_plan=True):
                steps = (self._fold.view.plan.as_status() or {}).get("steps", ())
                await self._update(helpers.update_plan(map(plan_entry, steps)))
            case turns.Waiting():
                self._ask(step.waits)
            case turns.Over():
                self._question = None
                self._ask([])
                await self._show_text(step.new_output)
                if step.reason not in {"completed", "interrupted"}:
                    await self._show_text(f"\n\n(The turn ended: {one_line(f'{step.reason} {step.detail}', 1_000)})")
                self._end(step.turn, "cancelled" if step.reason in turns.CANCELLED else "end_turn")
            case _:
                pass

    def _shown_call(self, tool: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
        """Return the fields of a call. Its title is the tool and the first text among the arguments."""
        texts = {name: value for name, value in (arguments or {}).items() if value and isinstance(value, str)}
        path = harmless_text(str(self._folder / texts.get("path", "")))
        return {
            "title": one_line(" ".join([tool, *texts.values()][:2]), 120),
            "kind": KINDS.get(tool, "other"),
            "status": "pending",
            "locations": [schema.ToolCallLocation(path=path)] if "path" in texts else None,
            "raw_input": arguments,
        }

    def _ask(self, waits: list[OpenWait]) -> None:
        """Ask the client about new questions. Withdraw the requests about questions that are no longer open."""
        requests = {item.approval_id: partial(self._decide, wait, item) for wait in waits for item in wait.calls}
        requests |= {wait.shown.wait_id: partial(self._decide, wait, None) for wait in waits if not wait.calls}
        for key in self._asked.keys() - requests:
            self._asked.pop(key).cancel()
        for key in requests.keys() - self._asked:
            self._asked[key] = asyncio.create_task(requests[key]())

    async def _decide(self, wait: OpenWait, item: Item | None) -> None:
        """Ask the client, and record its decision. If there is none, show how to decide, and let the prompt end."""
        how = "It waits in `orga inbox`."
        try:
            is_decided = await (self._ask_about_call(wait, item) if item else self._ask_to_choose(wait))
            if is_decided or self._turn in self._cancelled:
                return
        except (OrgaError, RPCError, RequestError, ValidationError, ConnectionError) as error:
            how = f"Not decided: {error}. {how}"
        if wait.shown.kind == "answer":
            self._question, how = wait, "Your next message answers it."
        lines = [wait.shown.question, *(f"- {option}" for option in wait.options), how]
        await self._show_text("\n".join(["\n", *lines, ""]))
        others = [task for task in self._asked.values() if task is not asyncio.current_task()]
        if all(task.done() for task in others):
            self._end(self._turn, "end_turn")

    async def _ask_about_call(self, wait: OpenWait, item: Item) -> bool:
        """Ask about one held call, and return whether it was decided."""
        arguments = held_arguments(item)
        if arguments is None:
            options, text = [DENY], "The arguments are too long to show here. See: orga approve --show"
        else:
            options, text = [ALLOW, DENY], json.dumps(arguments, indent=1, ensure_ascii=False)
        shown = self._shown_call(str(item.call.get("name", "")), arguments)
        place = item.place if wait.run.id == self._run.id else f"{wait.run.id}/{item.place}"
        chosen = await self._choice(place, escaped_text(f"{item.reason}\n{text}"), options, **shown)
        if chosen is None:
            return False
        decide = wait.run.approve if options[chosen] is ALLOW else wait.run.deny
        await decide(item.approval_id, self._reach.by, "decided in the editor")
        return True

    async def _ask_to_choose(self, wait: OpenWait) -> bool:
        """Ask a question, and return whether it was answered. One without options cannot be asked this way."""
        options = [
            schema.PermissionOption(option_id=str(index), name=one_line(text), kind="allow_once")
            for index, text in enumerate(wait.options)
        ]
        if not options:
            return False
        text, place = wait.shown.question, f"{wait.run.id}/{wait.shown.wait_id}"
        chosen = await self._choice(place, text, options, title=one_line(text, 1_000))
        if chosen is None:
            return False
        await wait.run.answer(wait.options[chosen], wait.shown.wait_id, self._reach.by)
        return True

    async def _choice(self, place: str, text: str, options: list[schema.PermissionOption], **shown: Any) -> int | None:
        """Ask the client to choose, and return the index of the option, or None if it chooses none."""
        call = schema.ToolCallUpdate(tool_call_id=place, content=content(text), **shown)
        outcome = (await self._client.request_permission(self._run.id, call, options)).outcome
        ids = [option.option_id for option in options]
        is_chosen = isinstance(outcome, schema.AllowedOutcome) and outcome.option_id in ids
        return ids.index(outcome.option_id) if is_chosen else None


def content(text: str) -> list[Any] | None:
    return [helpers.tool_content(helpers.text_block(harmless_text(text)))] if text else None


def plan_entry(step: dict[str, Any]) -> schema.PlanEntry:
    text = f"{step['skill']}: {step['goal']}{' (failed)' if step['status'] == 'failed' else ''}"
    return helpers.plan_entry(one_line(text, 500), status="pending" if step["status"] == "open" else "completed")


class _Message(BaseModel):
    """The keys that all messages share. The package checks all others, but a wrong value of these would stop it."""

    model_config = ConfigDict(extra="allow", strict=True)

    id: int | float | str | None = None
    method: str = ""
    error: dict[str, Any] = {}


class _JsonLines:
    """The connection: each line is one JSON object. For any other line, the client gets an error.

    Nothing is read from a client that does not read its responses. Otherwise unsent responses would fill the memory.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, source: BinaryIO, target: BinaryIO) -> Self:
        """Return the connection over two pipes."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=MAX_FRONTEND_MESSAGE_BYTES)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, target)
        return cls(reader, asyncio.StreamWriter(transport, protocol, None, loop))

    async def send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message, ensure_ascii=False, default=str).encode(errors="replace") + b"\n")
        await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None at the end."""
        while True:
            await self._writer.drain()
            try:
                if not (line := await self._reader.readline()):
                    return None
                return _Message.model_validate_json(line).model_dump(exclude_unset=True)
            except ValueError:  # no JSON, or a line that is too long: the reader drops parts of it
                problem = f"a line must be a message of JSON-RPC 2.0 with at most {MAX_FRONTEND_MESSAGE_BYTES:,} bytes"
                await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_MESSAGE, "message": problem}})

    async def close(self) -> None:
        self._writer.close()
