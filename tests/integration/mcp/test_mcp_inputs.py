"""MCP servers that need input from a person: the run asks, and the call is made once more with the answer."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.activities.adapters.mcp.servers import McpServers
from orga.client.proof.verify import verify
from orga.testing import FakeTool, answers, calls, permanent
from orga.workflows.types.questions import MAX_INPUT_ROUNDS
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from orga.workflows.types.tool_calls.mcp import McpServer
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import wait_until
from tests.support.mcp import asking
from tests.support.mcp.loop import an_mcp_loop
from tests.support.mcp.sources import settings_of
from tests.support.parts.mcp_servers import node_program
from tests.support.runs.questions import is_on_record, send_update, tool_results_in, wait_for_question
from tests.support.values.policies import a_verdict

LISTED = ["shop_*"]


def shop(folder: Path) -> dict[str, McpServer]:
    return {"shop": McpServer(command=sys.executable, args=(asking.__file__, str(folder)))}


def ordering(item: str = "lamp") -> Any:
    return calls("shop_order", arguments={"item": item})


async def answer(handle: WorkflowHandle[Any, Any], *texts: str) -> list[str]:
    """Answer the questions in order. Return their texts."""
    asked = list[str]()
    for text in texts:
        before = asked[-1] if asked else ""

        async def is_next(before: str = before) -> bool:
            waiting = (await handle.query("status"))["waiting"]
            return bool(waiting) and waiting[0]["question"] != before and await is_on_record(handle)

        await wait_until(is_next)
        [question] = (await handle.query("status"))["waiting"]
        asked.append(question["question"])
        await send_update(handle, "answer", text)
    return asked


async def answer_all(handle: WorkflowHandle[Any, Any], known: Mapping[str, str]) -> list[str]:
    """Answer each question whose title begins with one of the names, and leave out the others. Return their texts."""
    asked = list[str]()

    async def has_next() -> bool:
        status = await handle.query("status")
        is_new = bool(status["waiting"]) and status["waiting"][0]["question"] not in asked
        return status["termination"] is not None or (is_new and await is_on_record(handle))

    while True:
        await wait_until(has_next)
        if not (waiting := (await handle.query("status"))["waiting"]):
            return asked
        text = waiting[0]["question"]
        asked.append(text)
        title = text.splitlines()[1].lower()
        await send_update(
            handle, "answer", next((given for name, given in known.items() if title.startswith(name)), "-")
        )


async def test_a_form_becomes_questions_and_the_server_gets_the_answers(client: Client, tmp_path: Path) -> None:
    async with an_mcp_loop(client, [ordering(), answers()], shop(tmp_path), listed=LISTED, env={}) as loop:
        handle = await loop.start()
        asked = await answer(handle, "small", "two", "2", "-")
        ran = await loop.ended(handle)
        assert (await verify(client, handle.id)).ok
    assert tool_results_in(loop) == ["ordered 2 small lamp"]
    assert (tmp_path / "ordered").read_text() == "x"
    assert asked[0].startswith("The MCP server 'shop' asks, for shop_order: Which lamp do you want?\n")
    assert "Count: How many pieces?\nGive a whole number." in asked[1]
    assert asked[2].endswith("'two' is not a whole number")
    assert "(optional, '-' leaves it out)" in asked[3]
    [recovered] = [entry.data for entry in ran.journal if entry.event == "RecoveryTriggered"]
    assert (recovered["strategy"], recovered["outcome"]) == ("input", "ok")
    [ended] = [entry.data["outcomes"] for entry in ran.journal if entry.event == "ObservationsCollected"][:1]
    assert [each["outcome"] for each in ended] == ["ok"]
    assert ran.result.tool_calls.failed == 0


async def test_a_declined_form_is_reported_to_the_server(client: Client, tmp_path: Path) -> None:
    async with an_mcp_loop(client, [ordering(), answers()], shop(tmp_path), listed=LISTED, env={}) as loop:
        handle = await loop.start()
        question = await wait_for_question(handle)
        assert question["data"]["options"] == ["small", "large"]
        await send_update(handle, "resolve_escalation", {"escalation_id": question["wait_id"], "choice": "skip"})
        await loop.ended(handle)
    assert tool_results_in(loop) == ["not ordered: decline"]
    assert not (tmp_path / "ordered").exists()


async def test_an_address_is_shown_and_never_opened(client: Client, tmp_path: Path) -> None:
    async with an_mcp_loop(client, [calls("shop_pay"), answers()], shop(tmp_path), listed=LISTED, env={}) as loop:
        handle = await loop.start()
        [asked] = await answer(handle, "done")
        await loop.ended(handle)
    assert "It wants you to open https://shop.test/pay?id=7\n" in asked
    assert tool_results_in(loop) == ["accept state-7"]


async def test_nobody_is_asked_for_a_secret(client: Client, tmp_path: Path) -> None:
    async with an_mcp_loop(client, [calls("shop_log_in"), answers()], shop(tmp_path), listed=LISTED, env={}) as loop:
        ran = await loop.run()
    [text] = tool_results_in(loop)
    assert "it asks for a secret in a form (password), which the protocol forbids" in text
    assert "QuestionAsked" not in ran.events


async def test_an_abort_ends_the_wait(client: Client, tmp_path: Path) -> None:
    async with an_mcp_loop(client, [ordering(), answers()], shop(tmp_path), listed=LISTED, env={}) as loop:
        handle = await loop.start()
        await wait_for_question(handle)
        await handle.signal("abort", "enough")
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == "aborted"
    assert not (tmp_path / "ordered").exists()


@dataclass
class Closing:
    """A policy engine that denies every call once it is closed."""

    is_embedded = True
    is_closed: bool = False

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Allow, or deny calls."""
        is_denied = self.is_closed and proposal.call is not None
        return a_verdict(not is_denied, reason="the shop is closed", version=f"{self.is_closed}")


async def test_a_policy_that_changes_while_a_person_decides_denies_the_call(client: Client, tmp_path: Path) -> None:
    engine = Closing()
    steps = [ordering(), answers()]
    async with an_mcp_loop(client, steps, shop(tmp_path), listed=LISTED, env={}, engine=engine) as loop:
        handle = await loop.start()
        await answer(handle, "small", "2")
        engine.is_closed = True
        await answer(handle, "-")
        await loop.ended(handle)
        assert (await verify(client, handle.id)).ok
    [text] = tool_results_in(loop)
    assert "input from a person; [Policy denied] the shop is closed" in text
    assert not (tmp_path / "ordered").exists()


async def test_calls_in_parallel_have_questions_of_their_own(client: Client, tmp_path: Path) -> None:
    both = calls("shop_order", "shop_pay", arguments={"item": "lamp"})
    async with an_mcp_loop(client, [both, answers()], shop(tmp_path), listed=LISTED, env={}) as loop:
        handle = await loop.start()

        async def both_ask() -> bool:
            return len((await handle.query("status"))["waiting"]) == 2 and await is_on_record(handle)

        await wait_until(both_ask)
        waiting = (await handle.query("status"))["waiting"]
        [page] = [each["wait_id"] for each in waiting if "open https" in each["question"]]
        await send_update(handle, "answer", {"question_id": page, "text": "done"})
        await answer(handle, "small", "1", "x")
        await loop.ended(handle)
    assert tool_results_in(loop) == ["ordered 1 small lamp x", "accept state-7"]


async def test_a_call_can_need_input_several_times(client: Client, tmp_path: Path) -> None:
    script = [calls("shop_confirm", times=MAX_INPUT_ROUNDS), calls("shop_confirm", times=10), answers()]
    async with an_mcp_loop(client, script, shop(tmp_path), listed=LISTED, env={}) as loop:
        handle = await loop.start()
        await answer(handle, *["yes"] * MAX_INPUT_ROUNDS * 2)
        await loop.ended(handle)
        assert (await verify(client, handle.id)).ok
    assert tool_results_in(loop) == ["confirmed 5 times"]
    assert "needs input from a person; people were asked 5 times" in tool_results_in(loop, 2)[1]


async def test_an_alternative_can_need_input(client: Client, tmp_path: Path) -> None:
    order = FakeTool(
        "order",
        permanent("closed"),
        options=ToolOptions(recovery=Recovery(strategy="fallback", alternatives=("shop_order",), max_attempts=1)),
    )
    script, listed = [calls("order", item="lamp"), answers()], ["order", *LISTED]
    async with an_mcp_loop(client, script, shop(tmp_path), order, listed=listed, env={}) as loop:
        handle = await loop.start()
        await answer(handle, "small", "1", "-")
        await loop.ended(handle)
        assert (await verify(client, handle.id)).ok
    assert tool_results_in(loop)[0].endswith("ordered 1 small lamp")


async def test_a_retry_by_a_person_can_need_input(client: Client, tmp_path: Path) -> None:
    escalated = {"shop_confirm": ToolOptions(recovery=Recovery(strategy="escalate", max_attempts=1))}
    script = [calls("shop_confirm", times=6), answers()]
    async with an_mcp_loop(client, script, shop(tmp_path), listed=LISTED, env={}, options=escalated) as loop:
        handle = await loop.start()
        await answer(handle, *["yes"] * MAX_INPUT_ROUNDS)
        question = await wait_for_question(handle)
        await send_update(handle, "resolve_escalation", {"escalation_id": question["wait_id"], "choice": "retry"})
        await answer(handle, *["yes"] * MAX_INPUT_ROUNDS)
        question = await wait_for_question(handle)
        await send_update(handle, "resolve_escalation", {"escalation_id": question["wait_id"], "choice": "skip"})
        ran = await loop.ended(handle)
        assert (await verify(client, handle.id)).ok
    scheduled = [event.activity_task_scheduled_event_attributes for event in ran.history.events]
    ids = [each.activity_id for each in scheduled if each.activity_type.name == "shop_confirm"]
    assert "1.0.r1.i5" in ids
    assert len(set(ids)) == len(ids)


ELICITING = "old_trigger-elicitation-request"


def old_server() -> dict[str, McpServer]:
    """Return a server of another maker, whose protocol (2025-11-25) asks in the middle of a call."""
    return {"old": McpServer(command=node_program("mcp-server-everything"))}


async def test_a_server_that_asks_in_the_middle_of_a_call_gets_the_answers(client: Client) -> None:
    options = {ELICITING: ToolOptions(effect="idempotent")}
    steps = [calls(ELICITING), answers()]
    async with an_mcp_loop(client, steps, old_server(), listed=["old_*"], env={}, options=options) as loop:
        handle = await loop.start()
        question = await wait_for_question(handle)
        asked = await answer_all(
            handle, {"string: your full": "Ada", "integer": "42", "titled multiple": "fish-1, fish-3"}
        )
        await loop.ended(handle)
        assert (await verify(client, handle.id)).ok
    assert question["question"].startswith(f"The MCP server 'old' asks, for {ELICITING}: ")
    assert any("one or several of " in text for text in asked)
    [result] = tool_results_in(loop)
    assert "User provided the requested information" in result
    assert "Ada" in result
    assert "42" in result
    assert "fish-3" in result


async def test_an_irreversible_call_is_not_made_again_for_an_answer(client: Client) -> None:
    script, options = [calls(ELICITING), answers()], {"old_echo": ToolOptions(effect="idempotent")}
    async with an_mcp_loop(client, script, old_server(), listed=["old_*"], env={}, options=options) as loop:
        ran = await loop.run()
    [result] = tool_results_in(loop)
    assert result.startswith("[The server wanted to ask a person, and nobody was asked. ")
    assert 'effect = "idempotent"' in result
    assert "QuestionAsked" not in ran.events


@pytest.mark.parametrize("options", [{}, {"old_echo": ToolOptions(effect="idempotent")}])
async def test_a_server_learns_that_people_can_be_asked_only_if_a_call_may_be_repeated(
    options: dict[str, ToolOptions],
) -> None:
    """This server offers its tool that asks only to clients that can ask."""
    async with McpServers(settings_of({}, options, **old_server()), ()) as source:
        specs = await source.specs(["old_*"])
    assert "old_echo" in specs
    assert (ELICITING in specs) == bool(options)
