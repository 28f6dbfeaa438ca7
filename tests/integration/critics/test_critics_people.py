"""People as critics, or in place of one: they are asked as for a held call, and their decision counts."""

import pytest
from temporalio.client import Client

from orga.testing import ScriptedModel, answers
from tests.support.runs.critics import BAD, GARBAGE, a_critic, a_person, agents_with_critics, evaluations
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import send_update, wait_for_question


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        pytest.param("approve", ("completed", "second", ""), id="a person accepts it"),
        pytest.param(
            "deny", ("escalated", "", "critic quality: ada rejected it: not like this"), id="a person ends the run"
        ),
    ],
)
async def test_a_person_decides_after_the_last_revision(
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


async def test_a_person_can_be_the_critic(client: Client) -> None:
    """The person is asked as for a held call, and the wait uses no time of the run.

    The reason is feedback to the model.
    """
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


async def test_a_person_replaces_a_critic_that_fails(client: Client) -> None:
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


async def test_a_review_that_nobody_gives_in_time_fails(client: Client) -> None:
    critic = a_person(person={"expires_s": 0.2})
    async with a_loop(client, [answers("it")], agents=agents_with_critics(critic)) as loop:
        ran = await loop.run()
    assert ran.result.termination.detail == "critic editor: no review: nobody reviewed it in time"
    assert (ran.result.termination.reason, ran.result.output) == ("error", "")


async def test_an_abort_ends_a_review_by_a_person(client: Client) -> None:
    async with a_loop(client, [answers("it")], agents=agents_with_critics(a_person())) as loop:
        handle = await loop.start()
        await wait_for_question(handle)
        await handle.signal("abort", "enough")
        ran = await loop.ended(handle)
    assert (ran.result.termination.reason, ran.result.output) == ("aborted", "")
