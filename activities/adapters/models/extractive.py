"""`offline:extractive`: no language model but a reader, which searches, reads, and answers in quoted passages."""

import asyncio
import hashlib
from collections.abc import Callable

from pydantic_core import to_json

from orga.activities.adapters.models.reader.answer import answer_to
from orga.activities.adapters.models.reader.evidence import Evidence, call_id, evidence_of, turns_taken
from orga.activities.adapters.models.reader.fill import filled
from orga.activities.adapters.models.reader.goal import goal_text
from orga.activities.adapters.models.reader.held_names import with_held_names
from orga.activities.adapters.models.reader.plan import any_call, next_calls
from orga.activities.adapters.models.reader.question import Question, question_of
from orga.activities.adapters.models.reader.searches import in_words
from orga.activities.adapters.models.reader.synonyms import with_synonyms
from orga.activities.adapters.models.reader.toolbox import toolbox_of
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.usage import Usage

_CHARS_PER_TOKEN = 4
_VERBS = {"search_text": "Searching for", "read_file": "Reading", "list_files": "Listing files"}


class ExtractiveProvider:
    """Deterministic: the same request gives the same reply, and all it knows is in the request's messages."""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the next tool calls, or the answer."""
        reply = await asyncio.to_thread(_reply, request)
        for piece in reply.text.splitlines(keepends=True):
            on_text(piece)
            await asyncio.sleep(0)
        return reply


def _reply(request: ModelRequest) -> Reply:
    if request.tool_choice == "none" and not request.tools:  # a summary: the reader can quote, but not sum up
        return _counted(request, Reply(), 0)
    if (said := goal_text(request)) is not None:
        return _counted(request, Reply.of(text=said), len(said))
    evidence = evidence_of(request.messages)
    question = with_held_names(with_synonyms(question_of(request.messages)), evidence)
    if calls := _calls(request, question, evidence):
        written = len(to_json([call.arguments for call in calls])) + sum(len(call.name) for call in calls)
        text = _announcement(calls, question)
        return _counted(request, Reply.of(text, calls=calls, finish="tool_calls"), len(text) + written)
    room = request.max_output_tokens * _CHARS_PER_TOKEN
    text = answer_to(question, evidence, toolbox_of(request.tools), room)
    if request.output_schema is not None:  # cut text in whole JSON is an answer
        text = filled(request.output_schema, text[:room])
        return _counted(request, Reply.of(text), len(text))
    finish = "stop" if len(text) <= room else "length"
    return _counted(request, Reply.of(text[:room], finish=finish), min(room, len(text)))


def _calls(request: ModelRequest, question: Question, evidence: Evidence) -> tuple[ToolCall, ...]:
    if request.tool_choice == "none":
        return ()
    topic = hashlib.sha256(question.text.encode()).hexdigest()[:6]
    turn = turns_taken(request.messages, topic)
    toolbox = toolbox_of(request.tools)
    calls = next_calls(question, evidence, toolbox, turn)
    if not calls and request.tool_choice == "any":
        calls = any_call(question, toolbox)
    return tuple(c.with_id(call_id(topic, turn + 1, i)) for i, c in enumerate(calls, start=1))


def _announcement(calls: tuple[ToolCall, ...], question: Question) -> str:
    objects: dict[str, list[str]] = {}
    for call in calls:
        query, path = call.arguments.get("query"), call.arguments.get("path", "")
        what = str(path) if query is None else in_words(str(query), question)
        objects.setdefault(_VERBS[call.name], []).append(what)
    parts = [f"{verb} {', '.join(dict.fromkeys(filter(None, what)))}".strip() for verb, what in objects.items()]
    return "; ".join(parts) + "."


def _counted(request: ModelRequest, reply: Reply, written: int) -> Reply:
    read = len(to_json(request.messages)) + len(to_json(request.tools)) + sum(map(len, request.system))
    usage = Usage(input_tokens=read // _CHARS_PER_TOKEN + 1, output_tokens=written // _CHARS_PER_TOKEN + 1)
    return reply.with_usage(usage, "extractive", 0.0)
