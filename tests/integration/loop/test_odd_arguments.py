"""No signal and no update stops a run, whatever its content, and the sender of a bad update learns what is wrong."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from orga.client.errors import TooLong
from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.hold import Hold
from tests.support.runs.approvals import Asks, wait_for_held_calls
from tests.support.runs.loop import Loop, a_loop, a_worker
from tests.support.runs.questions import send_update, wait_for_question
from tests.support.values.odd_payloads import MB, SMALL, odd, quoted, raw

SIGNALS = [
    *("steer", "add_context", "pause", "resume", "abort", "rewound", "delegate_held", "no_such_signal"),
    *("answer", "approve", "resolve_escalation", "extend_budget"),
]
UPDATES = ["extend_budget", "resolve_escalation", "approve", "deny", "requeue"]
FIELDS = {
    "extend_budget": ["max_iterations", "max_cost_usd", "timeout_s"],
    "resolve_escalation": ["escalation_id", "choice", "result", "by", "reason"],
    "approve": ["approval_id", "approver", "reason"],
    "requeue": [],
}
FILLED = {
    "extend_budget": {},
    "resolve_escalation": {"escalation_id": '"x"', "choice": '"skip"'},
    "approve": {"approval_id": '"x"', "approver": '"ada"'},
}
MAX_SAID_CHARS = 12_000


@asynccontextmanager
async def held(client: Client, **config: Any) -> AsyncGenerator[tuple[Loop, WorkflowHandle[Any, Any], Hold]]:
    """Yield a run whose model call is in flight."""
    hold = Hold()
    async with a_loop(client, [hold.step(answers("done"))]) as loop:
        handle = await loop.start(**config)
        await hold.reached()
        yield loop, handle, hold


async def refusal(handle: WorkflowHandle[Any, Any], name: str, argument: Any) -> str:
    with pytest.raises(WorkflowUpdateFailedError) as failed:
        await send_update(handle, name, argument)
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError), cause
    assert len(cause.message) < MAX_SAID_CHARS
    return cause.message


@pytest.mark.parametrize("name", SIGNALS)
async def test_a_run_continues_after_every_odd_signal(client: Client, name: str) -> None:
    """All signals wait for the first task of the run."""
    loop = Loop(client, f"test-{uuid.uuid4()}", ScriptedModel([answers("done")], repeats=True))
    handle = await loop.start()
    for data in [*SMALL.values(), *odd(MB // 2).values()]:
        await handle.signal(name, raw(data))
    await handle.signal(name, args=[raw(b"1")] * 500)
    await handle.signal("resume")
    async with a_worker(loop):
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == ("aborted" if name == "abort" else "completed")


FLOODS = {kind: data for kind, data in odd(1_900_000).items() if kind != "text"}


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # of a task that a slow machine does twice
@pytest.mark.parametrize("kind", FLOODS)
async def test_every_signal_that_fits_the_history_is_read(client: Client, kind: str) -> None:
    """All signals arrive in one workflow task. tests/unit/loop/test_bounded_arguments.py measures its time."""
    loop = Loop(client, f"test-{uuid.uuid4()}", ScriptedModel([answers("done")], repeats=True))
    handle = await loop.start()
    for _ in range(20):
        await handle.signal("steer", raw(FLOODS[kind]))
    async with a_worker(loop):
        result = await handle.result()

    assert result["termination"]["reason"] in {"completed", "error"}  # the history is nearly full


@pytest.mark.parametrize("name", UPDATES)
async def test_every_odd_update_is_refused_with_an_explanation_and_the_run_continues(client: Client, name: str) -> None:
    async with held(client) as (loop, handle, hold):
        for data in [*SMALL.values(), *odd(MB // 2).values()]:
            assert await refusal(handle, name, raw(data))
        assert "not read: an argument of" in await refusal(handle, name, raw(odd(MB)["lists"]))
        hold.go.set()
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == "completed"


@pytest.mark.parametrize(("name", "field"), [(name, field) for name in FILLED for field in FIELDS[name]])
async def test_every_field_of_an_update_is_bounded(client: Client, name: str, field: str) -> None:
    """The refusal names the field, whatever its value."""
    async with held(client) as (loop, handle, hold):
        for kind, data in [*SMALL.items(), *odd(300_000).items()]:
            given = {**FILLED[name], field: data.decode()}
            text = ", ".join(f'"{key}": {value}' for key, value in given.items())
            refused = await refusal(handle, name, raw(f"{{{text}}}".encode()))
            assert refused, kind
        hold.go.set()
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == "completed"


LARGE = [1_000_000, 1_899_000, 1_910_000, 2_096_900, 2_097_152, 3_000_000, 4_100_000, 4_193_000]


@pytest.mark.parametrize("size", LARGE)
@pytest.mark.parametrize("name", ["requeue", "resolve_escalation", "no_such_update"])
async def test_no_update_is_large_enough_to_end_the_run(client: Client, name: str, size: int) -> None:
    """The server takes 4 MB. The response repeats what was sent, and a response that is too large would end the run."""
    async with held(client) as (loop, handle, hold):
        with pytest.raises((WorkflowUpdateFailedError, RPCError)):
            async with asyncio.timeout(10):
                await send_update(handle, name, raw(quoted("x", size)))
        hold.go.set()
        ran = await loop.ended(handle)
    assert ran.result.output == "done"


async def test_an_oversized_message_is_not_sent(client: Client) -> None:
    async with held(client) as (loop, handle, hold):
        run = AgentHandle(client, handle.id)
        with pytest.raises(TooLong):
            await run.requeue("x" * 2 * MB)
        hold.go.set()
        await loop.ended(handle)


async def test_the_longest_allowed_decisions_are_taken(client: Client) -> None:
    """They still fit into the history, the notes and the state."""
    pay = FakeTool("pay", effect="irreversible")
    provider = ScriptedModel([calls("pay"), calls("pay"), answers("done")], repeats=True)
    async with a_loop(client, provider, pay, engine=Asks()) as loop:
        handle = await loop.start(max_iterations=2, on_exhausted="ask")
        for name in ("approve", "deny"):
            [question] = await wait_for_held_calls(handle)
            given = {"approval_id": question["approval_id"], "approver": "\x01" * 200, "reason": "\x01" * 2_000}
            await send_update(handle, name, given)
        wait = await wait_for_question(handle)
        decided = {"escalation_id": wait["wait_id"], "choice": "skip", "result": "\x01" * 100_000}
        assert "reason" in await refusal(handle, "resolve_escalation", {**decided, "reason": "x" * 2_001})
        await send_update(handle, "resolve_escalation", {**decided, "reason": "\x01" * 2_000, "by": "\x01" * 1_000})
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == "max_iterations"
