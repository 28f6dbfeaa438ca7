"""Finds the decisions that wait for a person, in one run or in all runs. Each of them is a `Wait`."""

import asyncio
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, Self

from pydantic_core import from_json
from temporalio.service import RPCError

from orga.client.console.caches import Execution, WaitContext
from orga.client.console.routes import Call, Console, ListOf, Routes
from orga.client.console.rows import read_tasks
from orga.client.errors import OrgaError
from orga.client.journal.event_types import PolicyEvaluated
from orga.client.journal.run_view import ViewedEntry
from orga.client.journal.timeline_reader import timelines_of
from orga.client.journal.timeline_records import IterationRecord
from orga.client.runs.inbox import InboxEntry, inbox
from orga.workflows.types.json_text import as_object
from orga.workflows.types.questions import Item, ShownQuestion
from orga.workflows.types.record import CheckedInput, InvalidInput, Record, replace_fields
from orga.workflows.types.status import AgentStatus
from orga.workflows.types.text import clip

ROUTES = Routes()

CONTEXT_S = 1.0
"""Seconds to read the contexts of waits: the policies that hold them, and what their runs did before."""
MAX_RUNS_READ = 20  # runs whose contexts one request reads
MAX_BEFORE_BYTES = 600  # of a call, and of a reply

WaitKind = Literal["approval", "answer", "escalation", "budget", "result", "delivery"]


class Wait(Record):
    """One decision that waits for a person."""

    id: str
    """The id that a decision names: of an approval, a question, an escalation or a delivery, or the key of a call.
    Empty if no worker answers."""
    kind: str
    run: str
    run_task: str
    agent: str | None
    question: str
    options: tuple[str, ...] = ()
    """The only valid answers or choices. Empty: any text."""
    tool: str | None = None
    arguments: Any = None
    """All arguments of a held call. Null if the run does not hold them at the moment. A budget has `limit`, the name of
    the limit that is reached, and its present `value`."""
    policies: tuple[str, ...] = ()
    reason: str = ""
    approvers: tuple[str, ...] = ()
    queue: str = "default"
    expires: datetime | None = None
    asked: datetime | None = None
    place: str = ""
    before: str = ""
    """The last act of the run before it asked, such as the error that led to an escalation."""

    def with_context(self, context: WaitContext) -> Self:
        """Return the wait with this context, unless it has a context already."""
        added = {"policies": self.policies or context.policies, "before": self.before or context.before}
        return replace_fields(self, added)


class InboxQuery(CheckedInput):
    kind: WaitKind | None = None
    queue: str | None = None


def status_waits(run_id: str, task: str, status: AgentStatus) -> list[Wait]:
    """Return the waits of a run. Each held call has its own."""
    held = {item.approval_id: item for item in status.pending_approvals}
    return [wait for asked in status.waiting for wait in question_waits(run_id, task, status.agent, asked, held)]


def question_waits(
    run_id: str, task: str, agent: str | None, asked: ShownQuestion, held: Mapping[str, Item]
) -> list[Wait]:
    """Return one wait for each undecided call of a question, or one for the question as a whole.

    Args:
        held: The calls that the run holds now, by approval id.
    """
    data = asked.data
    common: dict[str, Any] = {
        "kind": asked.kind,
        "run": run_id,
        "run_task": task,
        "agent": agent,
        "question": asked.question,
        "queue": asked.queue,
        "asked": asked.since,
        "before": str(data.get("error") or ""),
    }
    if calls := data.get("calls"):
        return [_call_wait(common, as_object(call), held) for call in calls]
    choices = () if asked.kind == "answer" else asked.choices
    return [
        Wait(
            **common,
            id=asked.wait_id,
            options=tuple(map(str, data.get("options") or choices)),
            tool=data.get("tool") or None,
            arguments=_limit(data) if asked.kind == "budget" else _arguments(data),
            reason=str(data.get("reason") or ""),
            approvers=tuple(map(str, data.get("approvers") or ())),
            expires=_time(data.get("expires_at")),
            place=str(data.get("place") or data.get("call") or ""),
        )
    ]


def viewed_waits(run_id: str, task: str, agent: str | None, questions: Mapping[str, ViewedEntry]) -> list[Wait]:
    """Return the waits of a run from its journal, for a run whose worker does not answer."""
    found: list[Wait] = []
    for wait_id, asked in questions.items():
        data = asked.entry.data
        kind = data.get("kind", "answer")
        is_call = kind == "call"
        if kind == "approval":  # each of its calls has an entry of its own
            continue
        shown = ShownQuestion(
            wait_id=wait_id,
            kind="approval" if is_call else kind,
            since=asked.entry.timestamp,
            question=str(data.get("question") or f"approve {data.get('tool')}?"),
            queue=str(data.get("queue") or "default"),
            data={"calls": [data]} if is_call else data,
        )
        found += question_waits(run_id, task, agent, shown, {})
    return found


async def with_contexts(console: Console, waits: Sequence[Wait]) -> list[Wait]:
    """Return the waits with the policies that hold them, and with what the run did just before.

    Both come from the timeline, and never change. A context that is not found yet, or takes too long to read, is left
    out this time.
    """
    missing = {wait.run for wait in waits if wait.place and (wait.run, wait.id) not in console.caches.contexts}
    with suppress(TimeoutError):
        async with asyncio.timeout(CONTEXT_S):
            for run_id in list(missing)[:MAX_RUNS_READ]:
                await _read_contexts(console, run_id, [wait for wait in waits if wait.run == run_id])
    return [wait.with_context(console.caches.contexts.get((wait.run, wait.id), WaitContext())) for wait in waits]


async def _read_contexts(console: Console, run_id: str, waits: Sequence[Wait]) -> None:
    try:
        records = (await timelines_of(console.client).page(run_id, limit=2)).items
    except (OrgaError, InvalidInput, RPCError):  # the run has gone, or its history cannot be read
        return
    policies, before = _policies_by_place(records), _before(records)
    for wait in waits:
        if wait.kind != "approval" or wait.place in policies:
            console.caches.contexts.keep((run_id, wait.id), WaitContext(policies.get(wait.place, ()), before))


def _policies_by_place(records: Sequence[IterationRecord]) -> dict[str, tuple[str, ...]]:
    """Return the policies of each verdict, by its place.

    The records have them for the calls of replies. Only events have them for other proposals: answers, plans, and calls
    that no reply has, such as a step of a saga or a requeued letter.
    """
    found: dict[str, tuple[str, ...]] = {}
    for record in records:
        judged = [event for event in record.events if event.event == "PolicyEvaluated"]
        for event in judged:
            evaluated = PolicyEvaluated.model_validate(event.data)
            verdicts = zip(evaluated.places, evaluated.verdicts, strict=False)
            found |= {place: verdict.policies for place, verdict in verdicts}
        found |= {call.id: call.policies for call in record.calls}
    return found


def _before(records: Sequence[IterationRecord]) -> str:
    """Return a line each for the last call that has ended, and for the latest reply."""
    lines = list[str]()
    if ended := [call for record in records for call in record.calls if call.ended]:
        last = ended[-1]
        result = last.result.head if last.result else last.state
        lines.append(f"{last.tool}: {last.failure or result}")
    if records and (reply := records[-1].reply) is not None:
        lines.append(reply.head)
    return "\n".join(clip(line, MAX_BEFORE_BYTES) for line in lines if line)


def _call_wait(common: dict[str, Any], call: dict[str, Any], held: Mapping[str, Item]) -> Wait:
    item = held.get(str(call.get("id")))
    is_held_in_full = item is not None and "arguments_digest" not in item.call
    return Wait(
        **common,
        id=str(call.get("id")),
        tool=str(call.get("tool") or ""),
        arguments=item.call["arguments"] if item and is_held_in_full else _arguments(call),
        policies=(item.critic,) if item and item.critic else (),
        reason=str(call.get("reason") or ""),
        approvers=tuple(map(str, call.get("approvers") or ())),
        expires=_time(call.get("expires_at")),
        place=item.place if item else str(call.get("place") or ""),
    )


def _arguments(data: dict[str, Any]) -> Any:
    """Return arguments, which a question has as JSON text. None if they were cut, because nobody may approve a part."""
    text = data.get("arguments")
    if "arguments_digest" in data:
        return None
    if not isinstance(text, str):
        return text
    try:
        return from_json(text)
    except ValueError:
        return None


def _limit(data: dict[str, Any]) -> dict[str, Any]:
    return {key: data.get(key) for key in ("limit", "value")}


def _time(text: Any) -> datetime | None:
    return datetime.fromisoformat(str(text)) if text else None


async def read_inbox(
    console: Console, tenants: Container[str | None] | None, *, kind: WaitKind | None = None, queue: str | None = None
) -> list[Wait]:
    """Return the waits of all runs, those of the oldest run first. `queue` is a group of people."""
    found = inbox(console.client, kind=kind, queue=queue)
    entries = [entry async for entry in found if tenants is None or entry.tenant in tenants]
    tasks = await read_tasks(console, [Execution(entry.run_id, entry.segment_id) for entry in entries])
    waits = [wait for entry, task in zip(entries, tasks, strict=True) for wait in _entry_waits(entry, task)]
    return await with_contexts(console, waits)


def _entry_waits(entry: InboxEntry, task: str) -> list[Wait]:
    if entry.wait is not None:
        held = {each.approval_id: each for each in entry.held}
        return question_waits(entry.run_id, task, entry.agent, entry.wait, held)
    common: dict[str, Any] = {"kind": entry.kind, "run": entry.run_id, "run_task": task, "agent": entry.agent}
    if (failed := entry.undelivered) is not None:
        delivery = failed.delivery
        delivery_wait = Wait(
            **common,
            id=delivery.name,
            question=f"the answer was not delivered to {delivery.name} ({delivery.kind})",
            reason=delivery.error,
            asked=failed.goal.close_time,
            expires=failed.listed_until,
        )
        return [delivery_wait]
    if entry.failing is not None:
        return [Wait(**common, id="", question=entry.failing.problem_line, reason=entry.failing.remedy)]
    question = "No worker answers for this run. The page of the run shows what it waits for."
    reason = f"You can decide there now: it counts when a worker starts on task queue {entry.task_queue!r}."
    return [Wait(**common, id="", question=question, reason=reason)]


@ROUTES.get("/inbox")
async def _inbox(call: Call[InboxQuery]) -> ListOf[Wait]:
    """List what waits for a person over all runs, oldest run first."""
    waits = await read_inbox(call.console, call.visitor.tenants, kind=call.given.kind, queue=call.given.queue)
    return ListOf(items=waits, next=None)
