"""A saga reverses, or leaves, effects that only an earlier attempt of its step may have had."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolContext, ToolError
from orga.testing import FakeTool, answers
from orga.workflows.types.tool_calls.breakers import BreakerOptions
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.runs.questions import tool_results_in
from tests.support.runs.sagas import Ledger, an_agency, book, pay, saga

BACK = ["book flight", "cancel flight"]
ONE_FAILURE = BreakerOptions(scope="worker", failure_threshold=1)


def refused() -> str:
    raise ToolError("connection refused", retryable=True)


async def silent() -> str:
    await asyncio.sleep(30)
    return "never heard"


def tried(tool: str, ledger: Ledger, *attempts: Callable[[], Any], **options: Any) -> FakeTool:
    """Return a tool whose attempts go like this, one after the other; one that is silent had its effect."""
    left = list(attempts)

    def body(arguments: dict[str, Any], context: ToolContext) -> Any:
        attempt = left.pop(0)
        if attempt is silent:
            ledger.done.append(f"{tool} {arguments['what']}")
        return attempt()

    known: dict[str, Any] = {"timeout_s": 0.5, "max_attempts": len(attempts), "initial_interval_s": 0.01}
    return FakeTool(tool, body, "idempotent", options=ToolOptions(**known | options))


async def after(client: Client, ledger: Ledger, tool: FakeTool) -> str:
    """Return what is told of a saga that books and pays, one of them by this tool."""
    others = (ledger.tool(name) for name in ("book", "cancel", "pay") if name != tool.name)
    async with an_agency(client, [saga(book("flight"), pay()), answers()], tool, *others) as loop:
        await loop.run()
    return tool_results_in(loop)[0]


@pytest.mark.parametrize(
    ("attempts", "options", "done"),
    [
        pytest.param((silent, refused), {}, BACK, id="the first was cut off, the last not"),
        pytest.param((refused, silent, refused, refused), {}, BACK, id="one between others"),
        pytest.param((silent, refused), {"breaker": ONE_FAILURE}, BACK, id="then a circuit opened"),
        pytest.param((refused, refused, refused), {}, [], id="every one failed plainly"),
    ],
)
async def test_a_step_is_taken_back_when_one_of_its_attempts_may_have_acted(
    client: Client, attempts: tuple[Callable[[], Any], ...], options: dict[str, Any], done: list[str]
) -> None:
    ledger = Ledger()
    text = await after(client, ledger, tried("book", ledger, *attempts, **options))
    assert (ledger.done, "there was nothing to take back" in text) == (done, done == [])


@pytest.mark.parametrize(
    ("attempts", "done"),
    [
        pytest.param((silent, refused), ["book flight", "pay all"], id="it may have acted: nothing is taken back"),
        pytest.param((refused, refused), BACK, id="it has not: the rest is taken back"),
    ],
)
async def test_before_a_final_step_whose_earlier_attempt_may_have_acted(
    client: Client, attempts: tuple[Callable[[], Any], ...], done: list[str]
) -> None:
    ledger = Ledger()
    text = await after(client, ledger, tried("pay", ledger, *attempts))
    assert (ledger.done, "the outcome is unknown" in text.lower()) == (done, "pay all" in done)


async def test_a_call_that_a_circuit_cut_short_is_not_said_never_to_have_been_made(client: Client) -> None:
    ledger = Ledger()
    text = await after(client, ledger, tried("book", ledger, silent, refused, breaker=ONE_FAILURE))
    assert "It was not called again." in text
