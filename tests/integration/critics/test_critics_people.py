"""People as critics, and in their place: asked as about a held call, and what they say decides."""

import pytest
from temporalio.client import Client

from orga.testing import ScriptedModel, answers
from tests.support.runs.critics import BAD, GARBAGE, a_critic, a_person, agents_with_critics, evaluations
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import send_update, wait_for_question


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        pytest.param("approve", ("completed", "second", ""), id="a person takes it"),
        pytest.param("deny", ("escalated", "", "critic quality: ada rejected it: not like this"), id="or ends the run"),
    ],
)
async def test_a_person_decides_once_the_rounds_are_used_up(
    client: Client, update: str, expected: tuple[str, str, str]
) -> None:
    critic = a_critic(max_rounds=1, on_exhausted="ask", person={"approvers": ["ada"]})
    async with a_loop(
        client, [answers("first"), BAD, answers("second"), BAD], agents=agents_with_critics(critic)
    ) as loop:
        handle = await loop.start()
        wait = await wait_for_question(handle)
        [held] = wait["data"]["calls"]
        assert (wait["kind"], held["arguments"], held["approvers"]) == ("approval", '{"answer":"second"}', ["ada"])
        assert held["reason"].startswith("critic quality: 0.48 of the 0.70 that are needed after 1 revisions")
        await send_update(handle, update, {"approval_id": held["id"], "approver": "ada", "reason": "not like this"})
        ran = await loop.ended(handle)
    found = ran.result.termination
    assert (found.reason, ran.result.output, found.detail) == expected
    assert evaluations(ran, "then")[:2] == ["revise", "asked"]
    assert evaluations(ran, "reviewer")[2] == "person:ada"


async def test_a_person_as_the_critic(client: Client) -> None:
    """Asked like about a held call, outside the run's clock; a reason is feedback, in the operator's own voice."""
    provider = ScriptedModel([answers("first"), answers("second")], repeats=True)
    async with a_loop(client, provider, agents=agents_with_critics(a_person())) as loop:
        handle = await loop.start(timeout_s=20)
        for update, reason in (("deny", "shorter"), ("approve", "")):
            wait = await wait_for_question(handle)
            assert (await handle.query("status"))["phase"] == "waiting"
            [held] = wait["data"]["calls"]
            await send_update(handle, update, {"approval_id": held["id"], "approver": "bo", "reason": reason})
        ran = await loop.ended(handle)
    assert ran.result.output == "second"
    assert (
        provider.seen[1]
        .messages[-1]
        .text.startswith("[Answer not accepted] A person reviewed it and rejected it: shorter\nRevise")
    )
    assert evaluations(ran, "reviewer", "approved", "score") == [("person:bo", False, None), ("person:bo", True, None)]


async def test_a_person_stands_in_for_a_critic_that_fails(client: Client) -> None:
    async with a_loop(client, [answers("it"), GARBAGE], agents=agents_with_critics(a_critic(person={}))) as loop:
        handle = await loop.start()
        [held] = (await wait_for_question(handle))["data"]["calls"]
        await send_update(handle, "approve", {"approval_id": held["id"], "approver": "ada"})
        ran = await loop.ended(handle)
    assert ran.result.output == "it"
    assert evaluations(ran, "reviewer", "then") == [
        ("model:scripted:model", "asked"),
        ("person:ada", "accepted"),
    ]
    assert ran.result.usage.model_calls == 3


async def test_nobody_who_reviews_in_time_is_a_failed_review(client: Client) -> None:
    critic = a_person(person={"expires_s": 0.2})
    async with a_loop(client, [answers("it")], agents=agents_with_critics(critic)) as loop:
        ran = await loop.run()
    assert ran.result.termination.detail == "critic editor: no review: nobody reviewed it in time"
    assert (ran.result.termination.reason, ran.result.output) == ("error", "")


async def test_an_abort_while_a_person_reviews(client: Client) -> None:
    async with a_loop(client, [answers("it")], agents=agents_with_critics(a_person())) as loop:
        handle = await loop.start()
        await wait_for_question(handle)
        await handle.signal("abort", "enough")
        ran = await loop.ended(handle)
    assert (ran.result.termination.reason, ran.result.output) == ("aborted", "")
