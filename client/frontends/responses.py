"""OpenAI Responses: `/v1/responses` and `/v1/models`, for the `openai` SDK and chat pages that speak this protocol.

A model is an agent, and a response is a turn of a session. The response's id names session and turn, so this process
keeps nothing. A stream can be read again from any `sequence_number`: the numbers count events and characters of texts,
which are the same whenever the journal is read.
"""

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from orga.activities.media import Media
from orga.client.console.doors import Visitor
from orga.client.console.problems import Problem, refused
from orga.client.console.routes import Adapter, Console, json_body
from orga.client.errors import NoAnswer, NotTakenYet, OrgaError, Refused
from orga.client.frontends import threads, turns
from orga.client.runs.agents import new_run_id
from orga.client.runs.attachments import message_with_media
from orga.client.runs.sessions import SessionHandle
from orga.workflows.types.json_text import as_object, as_objects, as_text
from orga.workflows.types.sessions.session_input import MAX_MESSAGE_ATTACHMENTS, MAX_MESSAGE_BYTES
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.text import clean_json

_TURN = re.compile("[1-9][0-9]{0,7}")
_STATUS_BY_REASON = (
    {"completed": "completed"} | dict.fromkeys(turns.CANCELLED, "cancelled") | dict.fromkeys(turns.FAILED, "failed")
)
"""The status of a response, by the reason why its turn ended. All other reasons are limits: it is `incomplete`."""
_SHARED_FIELDS: dict[str, Any] = {"instructions": None, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
"""The fields that all responses share."""
_ERROR_CODES = {401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded"}


def responses_adapter(agents: Callable[[], Sequence[str]]) -> Adapter:
    """Return the adapter. `agents` returns the names of the agents, which are listed as models."""

    async def models(_: Request) -> Response:
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "orga"} for name in agents()]
        return JSONResponse({"object": "list", "data": listed})

    routes = (
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/responses", _create, methods=["POST"]),
        Route("/v1/responses/{id}", _retrieve, methods=["GET"]),
        Route("/v1/responses/{id}/cancel", _cancel, methods=["POST"]),
    )
    return Adapter("responses", routes, {"/v1/": _error_response}, ("/v1/responses",))


def _error_response(problem: Problem) -> Response:
    """Return a problem in the form of OpenAI's errors. An agent is a model there."""
    status, detail = problem.status, re.sub("^agent:", "model:", problem.detail)
    is_unknown_model = detail.startswith("model: there is no")
    if status == 422:
        status = 404 if is_unknown_model else 400
    where = detail.partition(":")[0]
    kind = "server_error" if status >= 500 else "invalid_request_error"
    if status == 429:
        kind = "rate_limit_error"
    error = {
        "message": detail,
        "type": kind,
        "param": where if where.isidentifier() else None,
        "code": "model_not_found" if is_unknown_model else _ERROR_CODES.get(status),
    }
    # the SDK would repeat the request, which has no id by which we could recognise the repeated message
    no_retry = {} if status == 429 else {"x-should-retry": "false"}
    return JSONResponse({"error": error}, status, headers=problem.headers | no_retry)


@dataclass
class ResponseFold:
    """Turns the steps of a turn into a response and its stream. The number of an event counts events and characters."""

    facts: dict[str, Any]
    """The fields of the response that do not change."""
    inbox: str
    """The address of the inbox."""
    after: int
    """The last number that the client has. Events up to it are left out."""
    _number: int = -1
    _items: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """All items of the stream by id, in the order of their `output_index`."""
    _open: str = ""
    """The id of the message whose text streams."""
    _answer: str = ""
    """The id of the last message that was an answer."""
    _over: turns.Over | None = None

    @property
    def number(self) -> dict[str, int]:
        return {"sequence_number": max(self._number, self.after)}

    def begin(self) -> Iterator[dict[str, Any]]:
        yield from self._event("created", response=self.response())
        yield from self._event("in_progress", response=self.response())

    def take(self, step: turns.Step) -> Iterator[dict[str, Any]]:
        match step:
            case turns.Text(run="", is_thinking=False):
                yield from self._message(f"msg_{step.iteration}", step)
            case turns.CallMade(run=""):
                call = {"type": "mcp_call", "server_label": "orga", "name": step.tool, "arguments": step.arguments}
                open_call = call | {"status": "in_progress", "output": None, "error": None}
                yield from self._item("added", f"mcp_{step.place}", open_call)
            case turns.CallEnded(run="", outcome="ok"):
                yield from self._item("done", f"mcp_{step.place}", {"status": "completed", "output": step.text})
            case turns.CallEnded(run=""):
                yield from self._item("done", f"mcp_{step.place}", {"status": "failed", "error": step.text})
            case turns.Waiting():
                yield from self._waiting(step)
            case turns.Over():
                yield from self._end(step)
            case _:
                pass

    def response(self) -> dict[str, Any]:
        """Return the response as it is now."""
        over, items = self._over, list(self._items.values())
        fields = self.facts | {"error": None, "incomplete_details": None}
        if over is None:
            return fields | {"status": "in_progress", "output": items, "usage": None}
        status = _STATUS_BY_REASON.get(over.reason, "incomplete")
        if status == "failed":
            fields["error"] = {"code": "server_error", "message": over.detail or over.reason}
        elif status == "incomplete":
            fields["incomplete_details"] = {"reason": over.reason}
        usage = {
            "input_tokens": over.usage.input_tokens,
            "input_tokens_details": {"cached_tokens": over.usage.cached_input_tokens},
            "output_tokens": over.usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": over.usage.thinking_tokens},
            "total_tokens": over.usage.total_tokens,
        }
        return fields | {"status": status, "output": list(filter(self._is_output, items)), "usage": usage}

    def _is_output(self, item: dict[str, Any]) -> bool:
        """Return False for rejected answers, texts before calls, and the messages about waiting questions."""
        return item["type"] == "mcp_call" or item["id"] == self._answer or item["status"] == "incomplete"

    def _event(self, kind: str, size: int = 1, **data: Any) -> Iterator[dict[str, Any]]:
        """Yield an event that takes `size` numbers, or the part of its text that the client lacks, or nothing."""
        self._number += size
        missing = self._number - self.after
        if 0 < missing < size:
            data["delta"] = data["delta"][-missing:]
        if missing > 0:
            yield {"type": f"response.{kind}", "sequence_number": self._number, **data}

    def _item(self, kind: str, item_id: str, fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Add or change an item, and yield the event about it."""
        item = self._items[item_id] = {"id": item_id} | self._items.get(item_id, {}) | fields
        yield from self._event(f"output_item.{kind}", output_index=[*self._items].index(item_id), item=item)

    def _part(self, kind: str, size: int = 1, **data: Any) -> Iterator[dict[str, Any]]:
        """Yield an event about the text of the open message."""
        at = {"item_id": self._open, "output_index": [*self._items].index(self._open), "content_index": 0}
        yield from self._event(kind, size, **at, **data)

    def _message(self, item_id: str, step: turns.Text, status: str = "completed") -> Iterator[dict[str, Any]]:
        """Begin a message if none is open, send the new part of its text, and end it if the text is whole."""
        if not self._open and step.text:
            message: dict[str, Any] = {"type": "message", "role": "assistant", "status": "in_progress", "content": []}
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield from self._item("added", item_id, message)
            self._open = item_id
            yield from self._part("content_part.added", part=part)
            self._items[item_id] = self._items[item_id] | {"content": [{**part}]}
        if not self._open:
            return
        self._items[self._open]["content"][0]["text"] = step.text
        if step.new:
            yield from self._part("output_text.delta", len(step.text) - len(step.shown), delta=step.new, logprobs=[])
        if step.is_whole:
            self._answer = self._open if step.is_answer else self._answer
            yield from self._end_message(status)

    def _end_message(self, status: str) -> Iterator[dict[str, Any]]:
        part = self._items[self._open]["content"][0]
        yield from self._part("output_text.done", text=part["text"], logprobs=[])
        yield from self._part("content_part.done", part=part)
        yield from self._item("done", self._open, {"status": status})
        self._open = ""

    def _waiting(self, step: turns.Waiting) -> Iterator[dict[str, Any]]:
        """Show what waits for a person. These events take no numbers, because another stream may not have them."""
        lines = [f"- {asked.shown.question}" for asked in step.waits]
        text = "\n".join(["This waits for a person:", *lines, f"Decide it in the inbox: {self.inbox}"])
        before = self._number, self.after, self._open
        self.after, self._open = -1, ""  # so that the message is sent whole, although another one is open
        item_id = f"msg_wait_{len(self._items)}"
        events = [*self._message(item_id, turns.Text("", 0, text, is_whole=True), "in_progress")]
        self._number, self.after, self._open = before
        yield from (event | self.number for event in events)

    def _end(self, over: turns.Over) -> Iterator[dict[str, Any]]:
        if self._open:
            yield from self._end_message("incomplete")
        self._answer = self._answer if over.output and not over.new_output else ""
        if over.new_output:
            yield from self._message("msg_output", turns.Text("", 0, over.new_output, is_whole=True, is_answer=True))
        self._over, self.after = over, -1
        response = self.response()
        kind = response["status"] if response["status"] in {"completed", "failed"} else "incomplete"
        yield from self._event(kind, response=response)


@dataclass(frozen=True)
class _TurnRequest:
    """A request about a response, which is a turn of a session."""

    session: SessionHandle
    turn: int
    request: Request
    body: dict[str, Any]
    """The body of a request that asks for a response. Empty for other requests."""

    async def past(self) -> list[JournalEntry]:
        """Return the journal of the session. Raise Problem if it has no message for this turn."""
        past = await turns.read_past(self.session)
        sent = [entry.event for entry in past if entry.data.get("kind") == "send"]
        if sent.count("InterventionReceived") - sent.count("InterventionRefused") < self.turn:
            raise Problem(404, f"there is no response resp_{self.session.id}.{self.turn}")
        return past

    async def read(self, after: int = -1) -> tuple[ResponseFold, turns.TurnFold, list[JournalEntry]]:
        """Return a response and a turn that have taken no steps yet, and the journal."""
        past = await self.past()
        begun = next((entry for entry in past if entry.data.get("turn") == self.turn), past[-1])
        facts = _SHARED_FIELDS | {
            "object": "response",
            "id": f"resp_{self.session.id}.{self.turn}",
            "created_at": int(begun.timestamp.timestamp()),
            "model": past[0].agent,
            "previous_response_id": f"resp_{self.session.id}.{self.turn - 1}" if self.turn > 1 else None,
            "background": bool(self.body.get("background")),
            "metadata": as_object(self.body.get("metadata")),
        }
        shown = ResponseFold(facts, f"{threads.console_address(self.request)}inbox", after)
        return shown, turns.TurnFold(self.session.id, self.turn), past

    async def response(self, *, is_awaited: bool) -> Response:
        """Return the response at once. If it is awaited, return it when the turn is over or waits for a person."""
        shown, fold, past = await self.read()
        async with aclosing(turns.turn_steps(self.session, fold, past, follow=is_awaited)) as steps:
            async for step in steps:
                list(shown.take(step))
                if isinstance(step, turns.Waiting):
                    break
        if fold.view.turn is None and fold.view.ending is not None:
            raise Problem(422, fold.view.ending.detail.removeprefix("InvalidInput: "))
        return JSONResponse(shown.response())

    async def stream(self, after: int = -1) -> Response:
        """Return the response as a stream of the events after this number."""
        shown, fold, past = await self.read(after)

        async def events() -> AsyncGenerator[dict[str, Any]]:
            for event in shown.begin():
                yield event
            shown_waits: set[str] = set()
            async for step in turns.turn_steps(self.session, fold, past):
                if isinstance(step, turns.Waiting):
                    ids = {wait.shown.wait_id for wait in step.waits}
                    if ids == shown_waits:  # nobody has decided for a while. The client can read on later
                        return
                    shown_waits = ids
                for event in shown.take(step):
                    yield event

        def failed(message: str, _: str) -> dict[str, Any]:
            return {"type": "error", "code": "server_error", "message": message, "param": None} | shown.number

        def fields(event: dict[str, Any]) -> dict[str, str]:
            return {"event": event["type"], "data": json.dumps(event)}

        return threads.TurnStream(events(), failed, fields, self.request)


async def _turn_request(request: Request, console: Console, visitor: Visitor, response_id: str) -> _TurnRequest:
    name, _, turn = response_id.removeprefix("resp_").rpartition(".")
    session = await threads.find_run(console, visitor, name)
    if not isinstance(session, SessionHandle) or not _TURN.fullmatch(turn):
        raise Problem(404, f"there is no response {response_id[:200]!r}. Its id begins with resp_")
    return _TurnRequest(session, int(turn), request, {})


async def _create(request: Request) -> Response:
    console, visitor = threads.admit(request, "operator", is_write=True)
    body = as_object(clean_json(await json_body(request)))
    messages, previous = _messages(body), body.get("previous_response_id")
    new = [each for each in messages if each.role != "assistant"]
    text = "\n\n".join(each.text for each in new) if previous else _transcript(messages)
    media = [each for message in new for each in message.media]
    if not previous:  # the request has the whole conversation, whose oldest part may be left out, but not its end
        kept_count = max(MAX_MESSAGE_ATTACHMENTS, len(messages[-1].media))
        media = media[-kept_count:]
    text, attachments = await message_with_media(text, media, console.client)
    if (size := len(to_json(text)) - 2) > MAX_MESSAGE_BYTES:
        raise Problem(422, f"input: has {size:,} bytes, and a turn takes {MAX_MESSAGE_BYTES:,}. Put it into a file")
    threads.require_room(console, visitor)
    if previous:
        before = await _turn_request(request, console, visitor, str(previous))
        if any(entry.event == "TurnStarted" and entry.data["turn"] > before.turn for entry in await before.past()):
            raise refused("previous_response_id", f"{previous} is not the newest of its session. Send the newest", 409)
        session = before.session
    else:
        session = await _start_session(console, visitor, body)
    try:
        turn = await threads.post_message(session, text, by=visitor.name, attachments=attachments)
    except NoAnswer as error:
        if not previous and not isinstance(error, NotTakenYet):  # nobody knows the session, so it would stay open
            with suppress(OrgaError):
                await session.close(by=visitor.name)
        raise
    wanted = _TurnRequest(session, turn, request, body)
    if body.get("stream"):
        return await wanted.stream()
    with threads.open_stream(console, visitor):
        return await wanted.response(is_awaited=not body.get("background"))


async def _start_session(console: Console, visitor: Visitor, body: dict[str, Any]) -> SessionHandle:
    schema = as_object(as_object(body.get("text")).get("format")).get("schema")
    tenant, session_id = as_object(body.get("metadata")).get("tenant"), new_run_id(None, "session")
    options = {"agent": body.get("model"), "tenant": tenant, "output_schema": schema}
    given = {key: value for key, value in options.items() if value}
    await threads.start_thread(console, visitor, "session", session_id, given)
    return SessionHandle(console.client, session_id)


async def _retrieve(request: Request) -> Response:
    console, visitor = threads.admit(request, "viewer", is_write=False)
    wanted = await _turn_request(request, console, visitor, unquote(request.path_params["id"]))
    if request.query_params.get("stream") not in {"true", "1"}:
        return await wanted.response(is_awaited=False)
    after = request.query_params.get("starting_after", "-1")
    if not after.removeprefix("-").isdecimal():
        raise Problem(422, "starting_after: must be the sequence_number of an event")
    return await wanted.stream(int(after))


async def _cancel(request: Request) -> Response:
    console, visitor = threads.admit(request, "operator", is_write=True)
    wanted = await _turn_request(request, console, visitor, unquote(request.path_params["id"]))
    try:
        await wanted.session.interrupt("the response was cancelled", turn=wanted.turn, by=visitor.name)
    except Refused:  # the turn is over already, or has not begun
        return await wanted.response(is_awaited=False)
    return await wanted.response(is_awaited=True)


class _Message(NamedTuple):
    role: str
    text: str
    media: Sequence[Media] = ()


def _messages(body: dict[str, Any]) -> list[_Message]:
    """Return the messages of a request. Other items of its input come from earlier responses, and are left out."""
    if body.get("tools"):
        raise Problem(422, "tools: an agent has its own tools. Leave them out")
    if body.get("conversation"):
        raise Problem(422, "conversation: is not supported. Send the previous_response_id of the newest response")
    given = body.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    messages = [
        _Message(as_text(item.get("role")) or "user", *threads.message_parts(item["content"], "input"))
        for item in as_objects(given)
        if "content" in item
    ]
    if instructions := as_text(body.get("instructions")):
        messages.insert(0, _Message("system", instructions))
    if not any(each.role == "user" and (each.text.strip() or each.media) for each in messages):
        raise Problem(422, "input: must have a text, a picture or a document of a user")
    return messages


def _transcript(messages: list[_Message]) -> str:
    """Return the messages as one text. Chat pages send the whole conversation each time. Its oldest part may be cut."""
    *earlier, (_, last, _) = messages
    if not earlier:
        return last
    room = MAX_MESSAGE_BYTES * 4 // 5 - len(json.dumps(last))  # a fifth is left for the words around the messages
    kept: list[str] = []
    for role, text, _ in reversed(earlier):
        room -= len(json.dumps(text)) + len(role) + 10
        if room < 0:
            break
        kept.insert(0, f"[{role}]\n{text}")
    return "\n\n".join(["The conversation so far:", *kept, "The message to answer now:", last])
