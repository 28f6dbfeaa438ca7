"""An agent asks the person it works for, on a real server: answers, options, defaults, refusals, endings."""

from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError

from orga.client.runs.agents import AgentHandle
from orga.client.testing.script import Step
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.agents import AgentConfig
from tests.support.hold import wait_until
from tests.support.runs.loop import Deny, Ran, a_loop
from tests.support.runs.questions import send_update, tool_results_in, wait_for_question

ASKING = {"default": AgentConfig(tools=("look", "ask_user"))}


def asks(question: str = "Which year?", *names: str, **more: Any) -> Step:
    return calls("ask_user", *names, arguments={"question": question, **more})


def an_asker(client: Client, *steps: Step, **given: Any) -> Any:
    return a_loop(client, steps, FakeTool("look"), agents=ASKING, **given)


def questions_of(ran: Ran) -> list[tuple[str, Any]]:
    return [(each.event, each.data.get("choice")) for each in ran.journal if each.event.startswith("Question")]


async def refuses(handle: WorkflowHandle[Any, Any], answer: Any) -> str:
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await send_update(handle, "answer", answer)
    return str(refused.value.cause)


async def test_the_answer_is_the_result_of_the_call(client: Client) -> None:
    async with an_asker(client, asks(), answers()) as loop:
        handle = await loop.start()
        asked = await wait_for_question(handle)
        status = await handle.query("status")
        assert (asked["kind"], asked["question"], status["question"]) == ("answer", "Which year?", "Which year?")
        assert status["phase"] == "waiting"
        answered = await AgentHandle(client, handle.id).answer("1999", by="ada")
        ran = await loop.ended(handle)
        assert tool_results_in(loop) == ["[Answer of the operator]\n1999"]
    assert answered == asked["wait_id"] == "question-1.0"
    [answer_data] = [each.data for each in ran.journal if each.event == "QuestionAnswered"]
    assert answer_data == {
        "id": answered,
        "question": "Which year?",
        "choice": "result",
        "answer": "1999",
        "by": "ada",
        "place": "1.0",
        "outcome": "ok",
    }
    assert ran.result.termination.reason == "completed"


async def test_only_an_option_is_accepted_as_answer(client: Client) -> None:
    async with an_asker(client, asks(options=["red", "blue"]), answers()) as loop:
        handle = await loop.start()
        asked = await wait_for_question(handle)
        assert asked["data"]["options"] == ["red", "blue"]
        assert await refuses(handle, "green") == "ValueError: answer with one of: red, blue"
        await send_update(handle, "answer", "blue")
        await loop.ended(handle)
        assert tool_results_in(loop) == ["[Answer of the operator]\nblue"]


async def test_two_questions_are_distinguished_by_their_ids(client: Client) -> None:
    async with an_asker(client, asks("Which year?", "ask_user", "look"), answers()) as loop:
        handle = await loop.start()

        async def both_are_asked() -> bool:
            return len((await handle.query("status"))["waiting"]) == 2

        await wait_until(both_are_asked)
        assert "name one by question_id: question-1.0, question-1.1" in await refuses(handle, "1999")
        assert "no question 'question-7' is open" in await refuses(handle, {"question_id": "question-7", "text": "x"})
        assert "unknown key 'id'" in await refuses(handle, {"id": "question-1.1", "text": "x"})
        await send_update(handle, "answer", {"question_id": "question-1.1", "text": "second"})
        await send_update(handle, "answer", "first")
        await loop.ended(handle)
        assert tool_results_in(loop) == ["[Answer of the operator]\nfirst", "[Answer of the operator]\nsecond", "ok"]


async def test_a_signal_can_answer_and_an_invalid_one_is_recorded_as_refused(client: Client) -> None:
    async with an_asker(client, asks(options=["red", "blue"]), answers()) as loop:
        handle = await loop.start()
        await wait_for_question(handle)
        for answer in ("green", {"text": ""}, 7, "red"):
            await handle.signal("answer", answer)
        ran = await loop.ended(handle)
        assert tool_results_in(loop) == ["[Answer of the operator]\nred"]
    refused = [each.data["reason"] for each in ran.journal if each.event == "InterventionRefused"]
    assert refused[0] == "answer with one of: red, blue"
    assert len(refused) == 3
    assert [e.data["kind"] for e in ran.journal if e.event == "InterventionReceived"] == ["answer"] * 4


async def test_an_answer_by_signal_counts_once_for_each_sender_and_id(client: Client) -> None:
    """A repeated answer may not answer the next question."""
    async with an_asker(client, asks("Which year?"), asks("Which month?"), answers()) as loop:
        handle = await loop.start()
        await wait_for_question(handle)
        await handle.signal("answer", {"id": "a", "by": "ada", "text": "1999"})
        await wait_until(lambda: asks_now(handle, "Which month?"))
        await handle.signal("answer", {"id": "a", "by": "ada", "text": "1999"})
        await handle.signal("answer", {"id": "a", "by": "bob", "text": "May"})
        ran = await loop.ended(handle)
    answered = [(each.data["answer"], each.data["by"]) for each in ran.journal if each.event == "QuestionAnswered"]
    assert answered == [("1999", "ada"), ("May", "bob")]
    received = [each.data for each in ran.journal if each.event == "InterventionReceived"]
    assert [(each["id"], each["by"]) for each in received] == [("a", "ada"), ("a", "ada"), ("a", "bob")]


async def asks_now(handle: WorkflowHandle[Any, Any], question: str) -> bool:
    return any(each["question"] == question for each in (await handle.query("status"))["waiting"])


@pytest.mark.parametrize(
    ("more", "told_model", "choice"),
    [
        pytest.param({"default": "2000"}, "[Default answer: nobody answered in time]\n2000", "result", id="a default"),
        pytest.param({}, "[No answer] nobody answered in time; go on without.", "skip", id="no default"),
    ],
)
async def test_an_unanswered_question_gets_its_default(
    client: Client, more: dict[str, Any], told_model: str, choice: str
) -> None:
    async with an_asker(client, asks(expires_s=1, **more), answers()) as loop:
        ran = await loop.run()
        assert tool_results_in(loop) == [told_model]
    assert questions_of(ran) == [("QuestionAsked", None), ("QuestionAnswered", choice)]
    assert ran.result.duration_s < 1  # the clock stopped


async def test_a_default_that_is_not_an_option_is_rejected(client: Client) -> None:
    async with an_asker(client, asks(options=["red", "blue"], default="green"), answers()) as loop:
        ran = await loop.run()
        assert "default: give one of the options" in tool_results_in(loop)[0]
    assert questions_of(ran) == []


@pytest.mark.parametrize(
    ("choice", "reason", "asked"),
    [
        pytest.param("skip", "completed", 2, id="skip"),
        pytest.param("abort", "aborted", 1, id="abort"),
    ],
)
async def test_a_person_may_refuse_to_answer(client: Client, choice: str, reason: str, asked: int) -> None:
    async with an_asker(client, asks(), answers()) as loop:
        handle = await loop.start()
        question = await wait_for_question(handle)
        decision = {
            "escalation_id": question["wait_id"],
            "choice": choice,
            "by": "ada",
            "reason": "not mine",
        }
        await send_update(handle, "resolve_escalation", decision)
        ran = await loop.ended(handle)
        assert isinstance(loop.provider, ScriptedModel)
        assert len(loop.provider.seen) == asked
    assert ran.result.termination.reason == reason
    assert questions_of(ran)[-1] == ("QuestionAnswered", choice)


async def test_an_abort_closes_the_question_and_refuses_queued_guidance(client: Client) -> None:
    async with an_asker(client, asks(), answers()) as loop:
        handle = await loop.start()
        await wait_for_question(handle)
        await handle.signal("steer", {"id": "a", "text": "hurry"})
        await handle.signal("abort", {"id": "b", "text": "enough"})
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == "aborted"
    ends = {"InterventionApplied", "InterventionRefused"}
    became = {each.data["id"]: each.event for each in ran.journal if each.event in ends}
    assert became == {"a": "InterventionRefused", "b": "InterventionApplied"}
    assert questions_of(ran)[-1] == ("QuestionAnswered", "none")


async def test_policy_decides_whether_the_agent_may_ask(client: Client) -> None:
    async with an_asker(client, asks(), answers(), engine=Deny("ask_user")) as loop:
        ran = await loop.run()
        assert "ask_user is forbidden" in tool_results_in(loop)[0]
    assert questions_of(ran) == []
