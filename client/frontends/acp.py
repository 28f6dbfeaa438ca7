"""The Agent Client Protocol: an editor talks with an agent over standard input and output.

A session of the protocol is a session of orga, and a prompt is a turn. A goal, or any other run, can be loaded as a
session, too: a prompt then guides it. This process keeps nothing that the run does not have: if it dies, the run goes
on, and another process can load the session with everything that waits for a person.
"""

import asyncio
import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, cast
from uuid import uuid4

from acp import PROTOCOL_VERSION, RequestError, schema
from acp.agent.connection import AgentSideConnection
from pydantic import BaseModel, ConfigDict, ValidationError

from orga.client.errors import Refused, RunEnded, RunNotFound
from orga.client.frontends.acp_session import REFUSED, AcpSession, Editor
from orga.client.frontends.reach import Reach, converts_errors
from orga.client.runs.agents import AgentHandle, run_id_of
from orga.client.runs.listing import RunFilter, listed_runs, read_first_message, with_details
from orga.workflows.types.names import GOAL_WORKFLOW, SESSION_WORKFLOW
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.text import clean_text, one_line

LISTED_SESSIONS = 50
MAX_LINE_BYTES = 4_000_000
"""The limit of a request. A message to a session is far shorter."""
NOT_FOUND, FAILED, INVALID, NO_JSON = -32002, -32603, -32600, -32700
"""Error codes of the protocol."""


class _Message(BaseModel):
    """The keys that every message shares. The package checks the rest, but wrong ones of these would stop it."""

    model_config = ConfigDict(extra="allow", strict=True)

    id: int | float | str | None = None
    method: str = ""
    error: dict[str, Any] = {}


async def serve(
    reach: Reach, agent_name: str, folder: Path, stdin: BinaryIO, stdout: BinaryIO, *, starts_goals: bool
) -> None:
    """Serve a client until it closes the input. The runs then go on.

    Args:
        agent_name: The agent of new sessions.
        folder: The folder that the agents act in.
        stdin: A pipe, like stdout.
        starts_goals: The first prompt of a new session is then a goal.
    """
    agent = AcpAgent(Editor(reach, folder), agent_name, starts_goals=starts_goals)
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, stdout)
    lines = Lines(reader, asyncio.StreamWriter(transport, protocol, None, loop))
    connection = AgentSideConnection(cast("Any", agent), lines, listening=False, use_unstable_protocol=True)
    try:
        await connection.listen()
    finally:
        agent.stop()
        await connection.close()


@dataclass(frozen=True)
class Lines:
    """The wire: one JSON object a line. A line that is none is answered with an error, and the next one is read.

    While the client does not read, nothing more is read from it, so what waits for it stays bounded.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, ensure_ascii=False, default=str).encode(errors="replace")
        self.writer.write(line + b"\n")
        await self.writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None at the end."""
        while True:
            await self.writer.drain()
            try:
                line = await self.reader.readline()
                if line.strip():
                    return _Message.model_validate_json(line).model_dump(exclude_unset=True)
                if not line:
                    return None
            except ValidationError as error:
                code = NO_JSON if error.errors()[0]["type"] == "json_invalid" else INVALID
                await self._refuse(code, "the line is no request, notification or response of JSON-RPC 2.0")
            except ValueError:  # the reader has dropped this part of the line. The rest of it is no JSON
                await self._refuse(INVALID, f"the line is longer than {MAX_LINE_BYTES:,} bytes. Send less")

    async def close(self) -> None:
        self.writer.close()

    async def _refuse(self, code: int, problem: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": problem}})


def _request_error(error: Exception) -> RequestError:
    is_refusal = isinstance(error, Refused | RunEnded | InvalidInput)
    code = NOT_FOUND if isinstance(error, RunNotFound) else REFUSED if is_refusal else FAILED
    return RequestError(code, str(error))


_explained = converts_errors(_request_error)


class AcpAgent:
    """One client's connection. Its methods are those of the protocol."""

    def __init__(self, editor: Editor, agent: str, *, starts_goals: bool) -> None:
        self._editor, self._reach, self._agent, self._starts_goals = editor, editor.reach, agent, starts_goals
        self._sessions: dict[str, AcpSession] = {}

    def on_connect(self, conn: AgentSideConnection) -> None:
        self._editor.client = conn

    async def initialize(
        self, protocol_version: int, client_capabilities: schema.ClientCapabilities | None = None, **_: Any
    ) -> schema.InitializeResponse:
        offered = client_capabilities.elicitation if client_capabilities else None
        self._editor.has_forms = offered is not None and offered.form is not None
        features: dict[str, Any] = {"list": {}, "resume": {}, "close": {}}
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=schema.Implementation(name="orga", title=f"orga: {self._agent}", version="0.1.0"),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(embedded_context=True),
                session_capabilities=schema.SessionCapabilities.model_validate(features),
            ),
        )

    @_explained
    async def new_session(self, cwd: str, **_: Any) -> schema.NewSessionResponse:
        self._require_folder(cwd)
        if self._starts_goals:
            run = AgentHandle(self._reach.client, run_id_of(None, "goal"))
        else:
            run = await self._reach.start("session", self._agent)
        await self._open(run, goal_of=self._agent if self._starts_goals else "")
        return schema.NewSessionResponse(session_id=run.id)

    @_explained
    async def load_session(self, cwd: str, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        """Open a session, and show its conversation to the client."""
        self._require_folder(cwd)
        await self._open(await self._reach.open(session_id), shows_past=True)
        return schema.LoadSessionResponse()

    @_explained
    async def resume_session(self, session_id: str, cwd: str, **_: Any) -> schema.ResumeSessionResponse:
        """Open a session whose conversation the client still has."""
        self._require_folder(cwd)
        await self._open(await self._reach.open(session_id))
        return schema.ResumeSessionResponse()

    @_explained
    async def list_sessions(self, cwd: str | None = None, **_: Any) -> schema.ListSessionsResponse:
        query = f"WorkflowType IN ('{SESSION_WORKFLOW}', '{GOAL_WORKFLOW}') AND {self._reach.runs_query}"
        wanted = RunFilter(running=True, tenant=self._reach.tenant, query=query)
        if cwd is not None and not self._is_inside(cwd):
            return schema.ListSessionsResponse(sessions=[])
        rows = await with_details(self._reach.client, await listed_runs(self._reach.client, wanted, LISTED_SESSIONS))
        firsts = await asyncio.gather(*(read_first_message(self._reach.client, row.id) for row in rows))
        folder = cwd or str(self._editor.folder)
        return schema.ListSessionsResponse(
            sessions=[
                schema.SessionInfo(
                    session_id=row.id, cwd=folder, title=first or one_line(row.task), updated_at=row.started.isoformat()
                )
                for row, first in zip(rows, firsts, strict=True)
            ]
        )

    @_explained
    async def prompt(self, session_id: str, prompt: list[Any], **more: Any) -> schema.PromptResponse:
        own_id = str(more.get("messageId") or uuid4())
        message_id = sha256(own_id.encode(errors="replace")).hexdigest()
        reason = await self._session(session_id).prompt(prompt_text(prompt), message_id)
        return schema.PromptResponse(stop_reason=reason)

    @_explained
    async def cancel(self, session_id: str, **_: Any) -> None:
        await self._session(session_id).cancel()

    @_explained
    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:
        """Stop the session's work and forget it here. In orga it stays open, so that it can be loaded again."""
        session = self._session(session_id)
        await session.cancel()
        del self._sessions[session_id]
        session.stop("the session was closed")
        return schema.CloseSessionResponse()

    def stop(self) -> None:
        for session in self._sessions.values():
            session.stop("the connection was closed")

    async def _open(self, run: AgentHandle, *, shows_past: bool = False, goal_of: str = "") -> None:
        if earlier := self._sessions.pop(run.id, None):
            earlier.stop("the session was opened again")
        session = self._sessions[run.id] = AcpSession(self._editor, run, goal_of)
        if not goal_of:
            await session.begin(shows_past=shows_past)

    def _session(self, session_id: str) -> AcpSession:
        if (session := self._sessions.get(session_id)) is None:
            raise RequestError(NOT_FOUND, f"session {one_line(session_id)!r} is not open here. Load it first")
        return session

    def _is_inside(self, cwd: str) -> bool:
        return "\0" not in cwd and Path(cwd).resolve().is_relative_to(self._editor.folder)

    def _require_folder(self, cwd: str) -> None:
        if not self._is_inside(cwd):
            problem = f"cwd: this agent acts in {self._editor.folder}, not in {one_line(cwd, 500)}"
            raise InvalidInput(f"{problem}. Start `orga acp` in the folder of the project")


def prompt_text(blocks: list[Any]) -> str:
    """Return a prompt as the text of a message.

    Raises:
        RequestError: It has an image or a sound.
    """
    parts = list[str]()
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                parts.append(block.text)
            case schema.ResourceContentBlock():
                parts.append(f"[{block.name}]({block.uri})")
            case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as file):
                parts.append(f"\n{file.uri}:\n{file.text}\n")
            case _:
                raise RequestError(REFUSED, "prompt: only texts, links and text files are read. Remove the rest")
    return clean_text("".join(parts))
