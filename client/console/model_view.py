"""Routes that show a run's conversation as its model sees it, and the versions of a goal's plan and memory."""

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import datetime
from itertools import chain, repeat
from typing import Any, NamedTuple

from pydantic import Field, ValidationError
from temporalio.client import Client
from temporalio.service import RPCError

from orga.client.console.routes import Call, ListOf, NoParameters, Routes
from orga.client.errors import OrgaError
from orga.client.history.chain import history_error, run_chain
from orga.client.history.events import happenings
from orga.client.journal.event_types import DecisionMade, PlanAdjusted, PlanMade, StepOverridden, read_event
from orga.client.journal.run_view import Plan
from orga.client.journal.timeline_reader import Timelines, timelines_of
from orga.client.journal.timeline_records import IterationRecord, TimelineEvent
from orga.workflows.decisions.goals.replies import UnusableReply, parsed_memory, reply_object
from orga.workflows.decisions.recount import ContextFold
from orga.workflows.types.context import DigestMismatch, MessageRef, ReasonRequest
from orga.workflows.types.messages import Message, Ranges, Reply
from orga.workflows.types.names import GOAL_WORKFLOW, PROMPT_ACTIVITIES
from orga.workflows.types.parts import ToolCall
from orga.workflows.types.record import CheckedInput, Record
from orga.workflows.types.status import Happening, JournalEntry

ROUTES = Routes()

MAX_PAGE_BYTES = 2_000_000
"""Bytes of text (UTF-8) after which a page of the conversation ends."""


class ConversationQuery(CheckedInput):
    offset: int = Field(default=0, ge=0, le=10**9)
    limit: int = Field(default=50, ge=1, le=500)


class SeenMessage(Record):
    """A message as the model sees it."""

    role: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    tool: str | None = None
    at: datetime | None = None
    """The time at which the model was first sent it. None for messages of earlier segments."""


class LeftOut(Record):
    """Messages that are no longer sent to the model."""

    at: datetime
    from_: int | None = Field(default=None, serialization_alias="from")
    """The iteration of the first message. None if it is not recorded."""
    to: int | None = None
    """The iteration of the last message."""
    how: str
    """`sliding_window`, `observation_masking`, `anchored_summary`, `refused_content` or `continue_as_new`."""
    why: str


class ConversationPage(Record):
    items: tuple[SeenMessage, ...]
    total: int
    left_out: tuple[LeftOut, ...]


_REASONS = {
    "sliding_window": "The conversation exceeded its token budget. The oldest messages are left out.",
    "observation_masking": "The conversation exceeded its token budget. The texts of old results are left out.",
    "anchored_summary": "The conversation exceeded its token budget. A summary replaces the oldest messages.",
    "refused_content": "The model's provider refused them.",
    "continue_as_new": "A new segment began, and what it can carry is limited.",
}


class _Seen(NamedTuple):
    message: Message
    iteration: int
    """The iteration that it came from. For messages of earlier segments: the last iteration of these."""
    at: datetime | None


class _Origin(NamedTuple):
    """The last two fields of `_Seen`."""

    iteration: int
    at: datetime | None


class _ConversationFold:
    """Follows the conversation of a segment, and the messages that are left out."""

    def __init__(self) -> None:
        self.seen: list[_Seen] = []
        self.ranges: dict[int, tuple[int, int]] = {}
        """By iteration: the first and the last iteration of the messages that it left out."""
        self._fold = ContextFold()
        self._base: list[_Seen] = []
        self._replied: _Seen | None = None

    @property
    def messages(self) -> list[_Seen]:
        """The instructions, the messages of the latest model call, and its reply."""
        instructions = self._fold.setup.instructions if self._fold.setup else ""
        head = [_Seen(Message.of("system", instructions), 0, None)] if instructions else []
        return [*head, *self.seen, *([self._replied] if self._replied else [])]

    def feed(self, happening: Happening) -> None:
        before = self._fold.iteration
        self._fold.feed(happening)
        if happening.name in PROMPT_ACTIVITIES and happening.kind == "scheduled":
            self._on_model_call(happening, before)
        elif happening.name in PROMPT_ACTIVITIES and happening.kind == "finished":
            reply = Reply.model_validate(happening.value)
            self._replied = _Seen(reply.message(), self._fold.iteration, happening.at)
        elif len(self._fold.messages) != len(self.seen):  # a state was carried over
            self.seen = [_Seen(message, self._fold.iteration, None) for message in self._fold.messages]

    def _on_model_call(self, happening: Happening, before: int) -> None:
        """Take the messages of a model call, and find out which iteration each of them came from."""
        request = ReasonRequest.model_validate(happening.value)
        if request.iteration != before:  # another attempt of the same iteration begins with the same messages
            self._base = self.seen
        context, messages = request.context, self._fold.messages
        base = [each for each in self._base if not (context.forget and each.message.knowledge)]
        self._note_range(request, base)
        dropped = set(_indexes(context.drop))
        kept = [each for index, each in enumerate(base) if index not in dropped]
        if context.summary is not None and context.drop:
            place = context.drop[0][0]
            kept.insert(place, _Seen(messages[place], request.iteration, happening.at))
        origins = [_Origin(each.iteration, each.at) for each in kept]
        origins += [_Origin(_iteration_of_news(each, before), happening.at) for each in context.news]
        if self._replied and context.news and context.news[0].reply is not None:
            origins[len(kept)] = _Origin(self._replied.iteration, self._replied.at)
        unknown = repeat(_Origin(before, None))
        self.seen = [
            _Seen(message, *origin) for message, origin in zip(messages, chain(origins, unknown), strict=False)
        ]
        self._replied = None

    def _note_range(self, request: ReasonRequest, base: Sequence[_Seen]) -> None:
        """Note the iterations of the messages that a call leaves out."""
        left_out = _indexes(request.context.drop or request.context.mask)
        iterations = [base[index].iteration for index in left_out if index < len(base)]
        if iterations:
            self.ranges[request.iteration] = (min(iterations), max(iterations))


def _iteration_of_news(news: MessageRef, before: int) -> int:
    """Return the iteration of a reply, or of the call with this result, whose id begins with its iteration."""
    return news.reply or int((news.result or "").partition(".")[0] or before)


def _indexes(ranges: Ranges) -> Iterator[int]:
    for start, stop in ranges:
        yield from range(start, stop)


@ROUTES.get("/runs/{id}/conversation")
async def _conversation(call: Call[ConversationQuery]) -> ConversationPage:
    """Return the messages as the model sees them, and what was left out."""
    fold, given = await _read_conversation(call.client, call.run_id), call.given
    left_out = [
        _left_out(event, fold.ranges.get(record.number))
        async for record in timelines_of(call.client).records(call.run_id)
        for event in record.events
        if event.event == "ContextCompacted"
    ]
    items, room = list[SeenMessage](), MAX_PAGE_BYTES
    messages = fold.messages
    for each in messages[given.offset : given.offset + given.limit]:
        shown = _shown(each)
        items.append(shown)
        room -= len(shown.text.encode("utf-8", "replace"))
        if room < 0:
            break
    return ConversationPage(items=tuple(items), total=len(messages), left_out=tuple(left_out))


async def _read_conversation(client: Client, workflow_id: str) -> _ConversationFold:
    chain = await run_chain(client, workflow_id)
    fold = _ConversationFold()
    try:
        async for happening in happenings(client, workflow_id, chain.run_ids[-1]):
            fold.feed(happening)
    except RPCError as error:
        raise history_error(workflow_id, error) from error
    except (DigestMismatch, ValidationError) as error:
        raise OrgaError(f"the history of {workflow_id!r} is inconsistent; `orga verify` shows where") from error
    return fold


def _shown(seen: _Seen) -> SeenMessage:
    message = seen.message.for_people()
    return SeenMessage(
        role=message.role,
        text=message.text,
        calls=message.calls,
        call_id=message.call_id,
        tool=message.tool,
        at=seen.at,
    )


def _left_out(event: TimelineEvent, iterations: tuple[int, int] | None) -> LeftOut:
    how = str(event.data.get("strategy") or "")
    first, last = iterations or (None, None)
    why = "A summary was made and not used." if event.data.get("unused") else _REASONS.get(how, "")
    return LeftOut(at=event.at, from_=first, to=last, how=how, why=why)


class PlannedStep(Record):
    id: str
    skill: str = ""
    goal: str = ""
    depends_on: tuple[str, ...] = ()
    status: str = "open"


class PlanVersion(Record):
    version: int
    at: datetime
    iteration: int
    by: str
    """`model`, `person`, `rule` or `pipeline`."""
    steps: tuple[PlannedStep, ...]
    added: tuple[str, ...]
    """Ids of steps that the previous version does not have."""
    dropped: tuple[str, ...]
    changed: tuple[str, ...]
    reason: str


@ROUTES.get("/runs/{id}/plans")
async def _plans(call: Call[NoParameters]) -> ListOf[PlanVersion]:
    """Return each version of a goal's plan."""
    versions, plan, reason = list[PlanVersion](), Plan(), ""
    async for record in _goal_records(call):
        for event in record.events:
            before, read = _steps(plan), read_event(_entry(event, record))
            plan.take(read, record.number)
            if isinstance(read, DecisionMade):
                reason = read.reason
            elif isinstance(read, (PlanMade, PlanAdjusted, StepOverridden)):
                version = PlanVersion(
                    version=len(versions) + 1,
                    at=event.at,
                    iteration=record.number,
                    by=_author(read),
                    reason=reason,
                    **_changes(before, _steps(plan)),
                )
                versions.append(version)
                reason = ""
    return ListOf(items=versions, next=None)


async def _goal_records(call: Call[NoParameters]) -> AsyncGenerator[IterationRecord]:
    """Yield the records of a goal. Other runs have no plan and no memory."""
    if call.described.workflow_type == GOAL_WORKFLOW:
        async for record in timelines_of(call.client).records(call.run_id):
            yield record


def _author(change: PlanMade | PlanAdjusted | StepOverridden) -> str:
    if isinstance(change, StepOverridden):
        return "person"
    if isinstance(change, PlanAdjusted):
        return change.by or "model"
    return "pipeline" if change.pipeline else "model"


def _steps(plan: Plan) -> dict[str, PlannedStep]:
    found = (plan.as_status() or {}).get("steps", [])
    return {str(step.get("id")): PlannedStep.model_validate(step) for step in found}


def _entry(event: TimelineEvent, record: IterationRecord) -> JournalEntry:
    return JournalEntry(
        sequence=0, timestamp=event.at, agent="", iteration=record.number, event=event.event, data=event.data
    )


def _changes(before: dict[str, PlannedStep], after: dict[str, PlannedStep]) -> dict[str, Any]:
    return {
        "steps": tuple(after.values()),
        "added": tuple(step for step in after if step not in before),
        "dropped": tuple(step for step in before if step not in after),
        "changed": tuple(step for step in after if step in before and _form(before[step]) != _form(after[step])),
    }


def _form(step: PlannedStep) -> tuple[str, str, tuple[str, ...]]:
    return step.skill, step.goal, step.depends_on


class MemoryVersion(Record):
    at: datetime
    iteration: int
    memory: str
    added: tuple[str, ...]
    """Sentences that the previous memory does not have."""
    removed: tuple[str, ...]


_KEEPING_EVENTS = {
    "goal_plan": "PlanMade",
    "goal_evaluate": "StepEvaluated",
    "goal_decide": "DecisionMade",
    "goal_compress": "MemoryCompressed",
}
"""The prompts whose reply can contain a memory. Each has the event that shows that the goal used the reply."""


@ROUTES.get("/runs/{id}/memory")
async def _memory(call: Call[NoParameters]) -> ListOf[MemoryVersion]:
    """Return each version of a goal's memory."""
    timelines, versions, memory = timelines_of(call.client), list[MemoryVersion](), ""
    async for record in _goal_records(call):
        after = await _memory_after(timelines, call.run_id, record, memory)
        if after != memory and record.started is not None:
            old, new = _sentences(memory), _sentences(after)
            added = tuple(each for each in new if each not in old)
            removed = tuple(each for each in old if each not in new)
            at = record.ended or record.started
            versions.append(MemoryVersion(at=at, iteration=record.number, memory=after, added=added, removed=removed))
        memory = after
    return ListOf(items=versions, next=None)


async def _memory_after(timelines: Timelines, run_id: str, record: IterationRecord, before: str) -> str:
    """Return the memory of a goal after an iteration. A reply that the goal did not use changes nothing."""
    event = next((each for each in record.events if each.event == _KEEPING_EVENTS.get(record.prompt or "")), None)
    if event is None or record.reply is None or event.data.get("taken") is False:
        return before
    reply = record.reply
    if reply.reference is not None:
        reply = (await timelines.record(run_id, record.number)).reply or reply
    try:
        return parsed_memory(reply_object(Reply.of(reply.head), record.prompt or ""), before)
    except UnusableReply:
        return before


def _sentences(text: str) -> Sequence[str]:
    return [each.strip() for each in re.split(r"(?<=[.;!?])\s+|\n+", text) if each.strip()]
