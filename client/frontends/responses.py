"""OpenAI Responses: `/v1/responses` and `/v1/models`, for the `openai` SDK and chat pages that speak this protocol.

A model is an agent, and a response is a turn of a session. Its id names both, so nothing is kept here. A stream can be
read again from any `sequence_number`, because the numbers count what the journal repeats: events, and characters.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import unquote

from pydantic_core import to_json
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from orga.client.console.doors import Visitor
from orga.client.console.problems import Problem
from orga.client.console.routes import Adapter, Console, json_body
from orga.client.errors import NoAnswer, NotTakenYet, OrgaError, Refused
from orga.client.frontends.openai_errors import OpenAIErrors
from orga.client.frontends.response_items import ResponseFold
from orga.client.frontends.threads import (
    TurnStream,
    admitted,
    console_address,
    find_run,
    message_text,
    open_stream,
    post_message,
    require_room,
    start_thread,
)
from orga.client.frontends.turns import TurnFold, Waiting, read_past, turn_steps
from orga.client.runs.agents import run_id_of
from orga.client.runs.sessions import SessionHandle
from orga.workflows.types.json_text import as_object, as_objects, as_text
from orga.workflows.types.sessions.session_input import MAX_MESSAGE_BYTES
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.text import clean_json

AgentNames = Callable[[], Sequence[str]]

_TURN = re.compile("[1-9][0-9]{0,7}")
_TOO_OLD = "previous_response_id: {} is not the newest response of its session. Send the id of the newest one"


def responses_adapter(agents: AgentNames) -> Adapter:
    """Return the adapter. `agents` returns the names to list as models."""

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_model(name) for name in agents()]})

    async def model(request: Request) -> Response:
        name = unquote(request.path_params["name"])
        if name not in agents():
            raise Problem(404, f"model: there is no agent {name!r}. GET /v1/models lists them")
        return JSONResponse(_model(name))

    routes = (
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{name}", model, methods=["GET"]),
        Route("/v1/responses", _create, methods=["POST"]),
        Route("/v1/responses/{id}", _retrieve, methods=["GET"]),
        Route("/v1/responses/{id}/cancel", _cancel, methods=["POST"]),
    )
    return Adapter("responses", routes, (Middleware(OpenAIErrors),))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "orga"}


@dataclass(frozen=True)
class _Asked:
    """One request about a response, with its session."""

    session: SessionHandle
    turn: int
    request: Request
    body: dict[str, Any]

    async def read(self, after: int = -1) -> tuple[ResponseFold, TurnFold, list[JournalEntry]]:
        """Return the empty response, the empty turn, and the journal. Raise Problem if there is no such turn."""
        past, number = await _past_of(self.session, self.turn), {"turn": self.turn}
        begun = (entry.timestamp for entry in past if number.items() <= entry.data.items())
        fold = ResponseFold(
            id=f"resp_{self.session.id}.{self.turn}",
            model=past[0].agent,
            created=int(next(begun, datetime.now(UTC)).timestamp()),
            previous=f"resp_{self.session.id}.{self.turn - 1}" if self.turn > 1 else None,
            inbox=f"{console_address(self.request)}inbox",
            after=after,
            body=self.body,
        )
        return fold, TurnFold(self.session.id, self.turn), past

    async def response(self, *, is_awaited: bool) -> dict[str, Any]:
        """Return the response: now, or when the turn is over or waits for a person."""
        shown, fold, past = await self.read()
        async with aclosing(turn_steps(self.session, fold, past, follow=is_awaited)) as steps:
            async for step in steps:
                list(shown.take(step, fold))
                if isinstance(step, Waiting):
                    break
        if fold.view.turn is None and fold.view.ending is not None:
            raise Problem(422, fold.view.ending.detail.removeprefix("InvalidInput: "))
        return shown.response()

    async def stream(self, after: int = -1) -> Response:
        """Return the response as a stream of the events after this number."""
        shown, fold, past = await self.read(after)

        def failed(message: str, _: str) -> dict[str, Any]:
            return {"type": "error", "code": "server_error", "message": message, "param": None} | shown.number

        return TurnStream(self._events(shown, fold, past), failed, _fields, self.request)

    async def _events(
        self, shown: ResponseFold, fold: TurnFold, past: list[JournalEntry]
    ) -> AsyncGenerator[dict[str, Any]]:
        for event in shown.begin():
            yield event
        asked: set[str] = set()
        async for step in turn_steps(self.session, fold, past):
            if isinstance(step, Waiting):
                ids = {wait.wait.wait_id for wait in step.waits}
                if ids == asked:  # nobody has decided it for a while, so the client asks again later
                    return
                asked = ids
            for event in shown.take(step, fold):
                yield event


def _fields(event: dict[str, Any]) -> dict[str, str]:
    return {"event": event["type"], "data": json.dumps(event)}


async def _session_of(console: Console, visitor: Visitor, response_id: str) -> tuple[SessionHandle, int]:
    name, _, turn = response_id.removeprefix("resp_").rpartition(".")
    found = await find_run(console, visitor, name)
    if not isinstance(found, SessionHandle) or not _TURN.fullmatch(turn):
        raise Problem(404, f"there is no response {response_id[:200]!r}. Its id begins with resp_")
    return found, int(turn)


async def _past_of(session: SessionHandle, turn: int) -> list[JournalEntry]:
    """Return the journal of a session. Raise Problem if it never got the message of this turn."""
    past = await read_past(session)
    sent = Counter(entry.event for entry in past if entry.data.get("kind") == "send")
    if sent["InterventionReceived"] - sent["InterventionRefused"] < turn:
        raise Problem(404, f"there is no response resp_{session.id}.{turn}")
    return past


async def _create(request: Request) -> Response:
    console, visitor = admitted(request, "operator", is_write=True)
    body = as_object(clean_json(await json_body(request)))
    for key in ("model", "previous_response_id"):
        if not isinstance(body.get(key, ""), str | None):
            raise Problem(422, f"{key}: must be a string")
    agent, previous = as_text(body.get("model")) or "default", as_text(body.get("previous_response_id"))
    if body.get("tools"):
        raise Problem(422, "tools: an agent has its own tools. Leave them out")
    if body.get("conversation"):
        raise Problem(422, "conversation: there are none. Send the previous_response_id of the newest response")
    messages = _messages(body)
    require_room(console, visitor)
    if previous:
        session, turn = await _session_of(console, visitor, previous)
        begun = [entry.data.get("turn") for entry in await _past_of(session, turn) if entry.event == "TurnStarted"]
        if any(cast("int", each) > turn for each in begun):
            raise Problem(409, _TOO_OLD.format(previous))
        text = _checked_length("\n\n".join(text for role, text in messages if role != "assistant"))
        turn = await post_message(session, text, visitor.name)
    else:
        text = _checked_length(_transcript(messages))
        session = await _begun(console, visitor, agent, body)
        try:
            turn = await post_message(session, text, visitor.name)
        except NoAnswer as error:
            if not isinstance(error, NotTakenYet):  # nobody knows the session, so it would wait for ever
                with suppress(OrgaError):
                    await session.close(by=visitor.name)
            raise
    asked = _Asked(session, turn, request, body)
    if body.get("stream"):
        return await asked.stream()
    with open_stream(console, visitor):
        return JSONResponse(await asked.response(is_awaited=not body.get("background")))


async def _begun(console: Console, visitor: Visitor, agent: str, body: dict[str, Any]) -> SessionHandle:
    schema = as_object(as_object(body.get("text")).get("format")).get("schema")
    given = {"agent": agent, "tenant": as_object(body.get("metadata")).get("tenant"), "output_schema": schema}
    known = {key: value for key, value in given.items() if value}
    return cast("SessionHandle", await start_thread(console, visitor, "session", run_id_of(None, "session"), known))


async def _retrieve(request: Request) -> Response:
    console, visitor = admitted(request, "viewer", is_write=False)
    session, turn = await _session_of(console, visitor, unquote(request.path_params["id"]))
    asked, query = _Asked(session, turn, request, {}), request.query_params
    if query.get("stream") in {"true", "1"}:
        after = query.get("starting_after", "-1")
        if not after.removeprefix("-").isdecimal():
            raise Problem(422, "starting_after: must be the sequence_number of an event")
        return await asked.stream(int(after))
    return JSONResponse(await asked.response(is_awaited=False))


async def _cancel(request: Request) -> Response:
    console, visitor = admitted(request, "operator", is_write=True)
    session, turn = await _session_of(console, visitor, unquote(request.path_params["id"]))
    asked = _Asked(session, turn, request, {})
    try:
        await session.interrupt("the response was cancelled", turn=turn, by=visitor.name)
    except Refused:  # it is over already, or has not begun
        return JSONResponse(await asked.response(is_awaited=False))
    return JSONResponse(await asked.response(is_awaited=True))


def _messages(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the roles and texts of the input. Items that are no messages come from earlier responses."""
    given = body.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    written = [each for each in as_objects(given) if "content" in each]
    found = [(as_text(each.get("role")) or "user", message_text(each["content"], "input")) for each in written]
    if instructions := as_text(body.get("instructions")):
        found.insert(0, ("system", instructions))
    if not any(role == "user" and text.strip() for role, text in found):
        raise Problem(422, "input: must have the text of a user")
    return found


def _checked_length(text: str) -> str:
    if (size := len(to_json(text)) - 2) > MAX_MESSAGE_BYTES:
        raise Problem(422, f"input: has {size:,} bytes, and a turn takes {MAX_MESSAGE_BYTES:,}. Put it into a file")
    return text


def _transcript(messages: list[tuple[str, str]]) -> str:
    """Return the messages as one text. Chat pages send the whole conversation each time; the oldest part may be cut."""
    *earlier, (_, last) = messages
    if not earlier:
        return last
    room = MAX_MESSAGE_BYTES * 4 // 5 - len(json.dumps(last))
    kept: list[str] = []
    for role, text in reversed(earlier):
        room -= len(json.dumps(text)) + len(role) + 10
        if room < 0:
            break
        kept.insert(0, f"[{role}]\n{text}")
    return "\n\n".join(["The conversation so far:", *kept, "The message to answer now:", last])
