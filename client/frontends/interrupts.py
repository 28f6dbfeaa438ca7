"""Questions to people as interrupts of AG-UI, one for each question, and the decisions of a resumed run."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from orga.client.console.doors import Visitor
from orga.client.console.problems import Problem
from orga.client.console.routes import Console
from orga.client.errors import Refused
from orga.client.frontends.reach import OpenWait, held_arguments, open_waits
from orga.client.frontends.threads import find_run
from orga.client.frontends.turns import read_past
from orga.client.runs.agents import AgentHandle
from orga.client.runs.sessions import SessionHandle
from orga.workflows.types.json_text import as_object, as_text
from orga.workflows.types.questions import ANSWER, Choice, Item

if TYPE_CHECKING:
    from ag_ui.core import Interrupt, ResumeEntry

BOOLEAN, STRING = {"type": "boolean"}, {"type": "string"}


def interrupt_of(asked: OpenWait, thread: str, base: str) -> "Interrupt":
    """Return the interrupt of a question."""
    from ag_ui.core import Interrupt

    call = asked.calls[0] if len(asked.calls) == 1 and asked.calls[0].call.get("name") != ANSWER else None
    expiries = [item.expires_at.isoformat() for item in asked.calls] or [as_text(asked.wait.data.get("expires_at"))]
    own = {"kind": asked.wait.kind, "run": asked.run.id, "url": f"{base}inbox"}
    return Interrupt(
        id=f"{asked.run.id}/{asked.wait.wait_id}",
        reason="tool_call" if call else "confirmation" if asked.calls else "input_required",
        message=asked.wait.question,
        tool_call_id=f"{asked.run.id}/{call.place}" if call else None,
        response_schema=_response_schema(asked),
        expires_at=min(expiries) or None,
        metadata={"orga": own | {"calls": [_shown_call(asked, item) for item in asked.calls]}},
        subagent_run_id=None if asked.run.id == thread else asked.run.id,
    )


def _shown_call(asked: OpenWait, item: Item) -> dict[str, Any]:
    return {
        "id": item.approval_id,
        "toolCallId": f"{asked.run.id}/{item.place}",
        "tool": item.call.get("name"),
        "arguments": held_arguments(item),
        "reason": item.reason,
        "approvers": list(item.approvers),
    }


def _response_schema(asked: OpenWait) -> dict[str, Any]:
    keys: dict[str, Any]
    match asked.wait.kind:
        case "approval":
            keys = {"approved": BOOLEAN, "reason": STRING}
            if len(asked.calls) > 1:
                each = {item.approval_id: {**BOOLEAN, "title": item.call.get("name")} for item in asked.calls}
                keys["calls"] = {"type": "object", "properties": each, "additionalProperties": False}
        case "answer":
            keys = {"answer": {**STRING, **({"enum": asked.options} if asked.options else {})}}
        case "result":
            keys = {"result": {}, "error": STRING}
        case "budget":
            keys = {"limit": {"type": "number"}, "choice": {"enum": list(asked.wait.choices)}}
        case _:
            keys = {"choice": {"enum": list(asked.wait.choices)}, "result": STRING, "reason": STRING}
    required = [] if asked.wait.kind in {"budget", "result"} else [next(iter(keys))]
    return {"type": "object", "properties": keys, "required": required, "additionalProperties": False}


async def decide(console: Console, thread: AgentHandle, visitor: Visitor, entries: "Sequence[ResumeEntry]") -> None:
    """Decide what the entries answer. An interrupt that is decided already stays as it is.

    Raises:
        Problem: The visitor may not decide, an interrupt is unknown, or its answer does not fit. Nothing was decided.
        Refused: Somebody else was faster, or the visitor is no approver of this call.
    """
    waits = {interrupt_of(each, "", "").id: each for each in await open_waits(thread)}
    planned = list[Callable[[], Awaitable[Any]]]()
    for entry in entries:
        asked = waits.get(entry.interrupt_id)
        if asked is None:
            if not await _is_decided(console, thread, visitor, entry.interrupt_id):
                problem = f"this thread has no interrupt {entry.interrupt_id[:200]!r}. Take the ids of its last run"
                raise Problem(404, f"resume: {problem}")
            continue
        role = "operator" if asked.wait.kind == "answer" else "approver"
        if not visitor.may(role):
            raise Problem(403, f"this needs the role {role}. Ask somebody who has it, or see the inbox")
        given: Any = None if entry.status == "cancelled" else "" if entry.payload is None else entry.payload
        planned += _decisions(thread, asked, visitor.name, given)
    for act in planned:
        await act()


async def _is_decided(console: Console, thread: AgentHandle, visitor: Visitor, interrupt_id: str) -> bool:
    run_id, _, wait_id = interrupt_id.rpartition("/")
    is_of_thread = run_id == thread.id or run_id.startswith(f"{thread.id}.")
    if not is_of_thread or (run := await find_run(console, visitor, run_id)) is None:
        return False
    return any(entry.data.get("id") == wait_id and not entry.run for entry in await read_past(run))


def _decisions(thread: AgentHandle, asked: OpenWait, by: str, given: Any) -> Sequence[Callable[[], Awaitable[Any]]]:
    """Return what to do for an answer to a question. None cancels it: calls are denied, and else the turn ends."""
    run, wait, answer = asked.run, asked.wait, as_object(given)
    if wait.kind == "approval":
        decided = {"approved": False, "reason": "cancelled"} if given is None else answer
        return [_decision(run, item, decided, by) for item in asked.calls]
    if given is None and isinstance(thread, SessionHandle):
        return [lambda: thread.interrupt("the question was cancelled", by=by)]
    if wait.kind == "answer":
        text = given if isinstance(given, str) else answer.get("answer")
        if not isinstance(text, str) or not text or (asked.options and text not in asked.options):
            raise _misfit(asked, "answer")
        answered = {"id": wait.wait_id, "answer": text, "by": by}
        return [lambda: _once(run, run.answer(text, wait.wait_id, by), answered)]
    if wait.kind == "result":
        ends = {key: answer[key] for key in ("result", "error") if answer.get(key) not in (None, "")}
        if len(ends) != 1 or not isinstance(answer.get("error", ""), str):
            raise _misfit(asked, "result")
        return [lambda: run.complete_tool_call(wait.wait_id, by=by, **ends)]
    limit, choice = answer.get("limit"), answer.get("choice")
    if wait.kind == "budget" and isinstance(limit, int | float) and not isinstance(limit, bool):
        return [lambda: run.extend_budget(by=by, **{as_text(wait.data.get("limit")): limit})]
    if choice not in wait.choices:
        raise _misfit(asked, "choice")
    chosen: Choice = choice
    texts = as_text(answer.get("result")), by, as_text(answer.get("reason"))
    return [lambda: run.resolve_escalation(wait.wait_id, chosen, *texts)]


def _decision(run: AgentHandle, item: Item, answer: Mapping[str, Any], by: str) -> Callable[[], Awaitable[Any]]:
    approved = as_object(answer.get("calls")).get(item.approval_id, answer.get("approved"))
    if not isinstance(approved, bool):
        raise Problem(422, f"resume: {item.approval_id}: approved must be true or false. Nothing was decided")
    if approved and held_arguments(item) is None:
        raise Problem(409, f"resume: {item.approval_id} has arguments too long to show here. See the inbox")
    send = run.approve if approved else run.deny
    decided = {"id": item.approval_id, "approved": approved, "approver": by}
    return lambda: _once(run, send(item.approval_id, by, as_text(answer.get("reason"))), decided)


async def _once(run: AgentHandle, decision: Awaitable[Any], recorded: Mapping[str, Any]) -> None:
    """Make a decision. The same one by the same person, made by a repeated request, counts once."""
    try:
        await decision
    except Refused:
        if not any(recorded.items() <= entry.data.items() for entry in await read_past(run)):
            raise


def _misfit(asked: OpenWait, key: str) -> Problem:
    schema = to_json(_response_schema(asked)["properties"][key]).decode()
    return Problem(422, f"resume: {asked.wait.wait_id}: {key} must fit {schema}. Nothing was decided")
