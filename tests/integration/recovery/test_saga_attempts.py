"""A saga compensates, or keeps, effects that only an earlier attempt of its step may have had."""

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
    """Return a tool with these attempts, one after the other. A silent attempt has had its effect."""
    left = list(attempts)

    def body(arguments: dict[str, Any], context: ToolContext) -> Any:
        attempt = left.pop(0)
        if attempt is silent:
            ledger.done.append(f"{tool} {arguments['what']}")
        return attempt()

    known: dict[str, Any] = {"timeout_s": 0.5, "max_attempts": len(attempts), "initial_interval_s": 0.01}
    return FakeTool(tool, body, "idempotent", options=ToolOptions(**known | options))


async def result_of_saga(client: Client, ledger: Ledger, tool: FakeTool) -> str:
    """Return the result of a saga that books and pays, one of them with this tool."""
    others = (ledger.tool(name) for name in ("book", "cancel", "pay") if name != tool.name)
    async with an_agency(client, [saga(book("flight"), pay()), answers()], tool, *others) as loop:
        await loop.run()
    return tool_results_in(loop)[0]


@pytest.mark.parametrize(
    ("attempts", "options", "done"),
    [
        pytest.param((silent, refused), {}, BACK, id="the first was cut off, the last was not"),
        pytest.param((refused, silent, refused, refused), {}, BACK, id="one in between was cut off"),
        pytest.param((silent, refused), {"breaker": ONE_FAILURE}, BACK, id="then a circuit opened"),
        pytest.param((refused, refused, refused), {}, [], id="every attempt was refused"),
    ],
)
async def test_a_step_is_compensated_if_one_of_its_attempts_may_have_acted(
    client: Client, attempts: tuple[Callable[[], Any], ...], options: dict[str, Any], done: list[str]
) -> None:
    ledger = Ledger()
    text = await result_of_saga(client, ledger, tried("book", ledger, *attempts, **options))
    assert (ledger.done, "there was nothing to take back" in text) == (done, done == [])


@pytest.mark.parametrize(
    ("attempts", "done"),
    [
        pytest.param((silent, refused), ["book flight", "pay all"], id="it may have acted: nothing is compensated"),
        pytest.param((refused, refused), BACK, id="it has not acted: the rest is compensated"),
    ],
)
async def test_a_final_step_whose_earlier_attempt_may_have_acted_keeps_the_effects(
    client: Client, attempts: tuple[Callable[[], Any], ...], done: list[str]
) -> None:
    ledger = Ledger()
    text = await result_of_saga(client, ledger, tried("pay", ledger, *attempts))
    assert (ledger.done, "the outcome is unknown" in text.lower()) == (done, "pay all" in done)


async def test_a_call_interrupted_by_a_circuit_is_not_reported_as_never_made(client: Client) -> None:
    ledger = Ledger()
    text = await result_of_saga(client, ledger, tried("book", ledger, silent, refused, breaker=ONE_FAILURE))
    assert "It was not called again." in text
