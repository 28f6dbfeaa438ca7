"""Recovery on a real server: what each strategy does after the last attempt of a call."""

from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError

from orga.activities.ports import ToolContext, ToolError
from orga.client.history.events import UNRECORDED
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.text import undelimited_text
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions
from tests.support.runs.loop import WORKER_FACTS, Deny, Ran, a_loop
from tests.support.runs.questions import send_update, tool_results_in, wait_for_question

ONCE: dict[str, Any] = {"max_attempts": 1, "base_delay_ms": 1}


def broken(arguments: dict[str, Any], context: ToolContext) -> str:
    raise ToolError("the disk is full")


def a_tool(name: str, body: Any = broken, effect: Effect = "idempotent", **recovery: Any) -> FakeTool:
    options = ToolOptions(recovery=Recovery(**{**ONCE, **recovery}))
    return FakeTool(name, body, effect=effect, options=options)


def triggered(ran: Ran) -> list[tuple[str, str, str]]:
    found = [entry.data for entry in ran.journal if entry.event == "RecoveryTriggered"]
    return [(data["tool"], data["strategy"], data["outcome"]) for data in found]


async def test_without_a_strategy_the_model_gets_the_error(client: Client) -> None:
    async with a_loop(client, [calls("save"), answers()], a_tool("save")) as loop:
        ran = await loop.run()
    assert tool_results_in(loop) == ["[Error] ToolError: the disk is full"]
    assert (triggered(ran), ran.result.tool_calls.failed) == ([], 1)


@pytest.mark.parametrize(
    ("execution", "pause_s", "error"),
    [
        pytest.param("activity", 0.001, "ToolError: the disk is full", id="an activity"),
        pytest.param("local", 0.05, "ToolError: the disk is full", id="a local activity, after a timer"),
        pytest.param("local", 0.001, UNRECORDED, id="a local activity, at once"),
    ],
)
async def test_a_retried_call_is_recorded(client: Client, execution: Any, pause_s: float, error: str) -> None:
    """This is the default recovery: only more attempts."""
    tries: list[int] = []

    def second_time_lucky(arguments: dict[str, Any], context: ToolContext) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ToolError("the disk is full", retryable=True)
        return "saved"

    options = ToolOptions(max_attempts=3, initial_interval_s=pause_s, execution=execution)
    save = FakeTool("save", second_time_lucky, effect="read_only", options=options)
    async with a_loop(client, [calls("save"), answers()], save) as loop:
        ran = await loop.run()
    assert (tool_results_in(loop), triggered(ran)) == (["saved"], [("save", "retry", "ok")])
    [again] = [entry.data for entry in ran.journal if entry.event == "RecoveryTriggered"]
    assert (again["attempts"], again["call_id"], again["error"]) == (2, "save_0", error)


async def test_the_first_working_alternative_answers(client: Client) -> None:
    save = a_tool("save", strategy="fallback", alternatives=("tape", "cloud", "paper"))
    tape, cloud, paper = a_tool("tape"), FakeTool("cloud", lambda a, c: f"kept {a['n']}"), FakeTool("paper")
    async with a_loop(client, [calls("save", arguments={"n": 7}), answers()], save, tape, cloud, paper) as loop:
        ran = await loop.run()
    assert tool_results_in(loop) == [
        "[Fallback] cloud answered instead; the call failed: ToolError: the disk is full\nkept 7"
    ]
    assert (len(tape.contexts), len(cloud.contexts), len(paper.contexts)) == (1, 1, 0)
    assert triggered(ran) == [("save", "fallback", "ok")]
    assert ran.result.tool_calls.model_dump() == {"proposed": 3, "run": 3, "denied": 0, "failed": 1, "fallbacks": 2}


async def test_an_alternative_goes_through_the_gate(client: Client) -> None:
    save, cloud = a_tool("save", strategy="fallback", alternatives=("cloud",)), FakeTool("cloud")
    async with a_loop(client, [calls("save"), answers()], save, cloud, engine=Deny("cloud")) as loop:
        ran = await loop.run()
    assert cloud.contexts == []
    assert tool_results_in(loop) == ["[Error] ToolError: the disk is full"]
    assert triggered(ran) == [("save", "fallback", "failed")]
    assert ran.events.count("PolicyEvaluated") == 3


async def test_no_alternative_follows_an_effect_that_may_have_happened(client: Client) -> None:
    """The payment may have gone through, so another way to pay could pay twice."""

    async def hangs(arguments: dict[str, Any], context: ToolContext) -> str:
        raise ToolError("cut off", kind="TimeLimit")

    pay = a_tool("pay", hangs, effect="irreversible", strategy="fallback", alternatives=("cash",))
    cash = FakeTool("cash")
    async with a_loop(client, [calls("pay"), answers()], pay, cash) as loop:
        await loop.run()
    assert cash.contexts == []
    assert "The outcome is unknown" in tool_results_in(loop)[0]


async def test_the_last_good_result_of_the_same_call_replaces_a_failed_one(client: Client) -> None:
    def flaky(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(look.contexts) > 2:
            raise ToolError("gone")
        return f"weather of {arguments['city']}"

    look = a_tool("look", flaky, effect="read_only", strategy="cached_result", max_staleness_s=60)
    steps = [calls("look", arguments={"city": city}) for city in ("Bern", "Genf", "Bern", "Basel")]
    async with a_loop(client, [*steps, answers()], look) as loop:
        ran = await loop.run()
    assert tool_results_in(loop, 4)[2].endswith("the call failed now: ToolError: gone\nweather of Bern")
    assert tool_results_in(loop, 4)[2].startswith("[Cached result, ")
    assert tool_results_in(loop, 4)[3] == "[Error] ToolError: gone"
    assert triggered(ran) == [("look", "cached_result", "ok"), ("look", "cached_result", "failed")]


async def test_a_cached_result_survives_continue_as_new(client: Client) -> None:
    def flaky(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(look.contexts) > 1:
            raise ToolError("gone")
        return "sunny"

    look = a_tool("look", flaky, effect="read_only", strategy="cached_result")
    facts = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
    async with a_loop(client, [calls("look"), calls("look"), answers()], look, setup=facts) as loop:
        ran = await loop.run()
    assert len(ran.histories) == 3
    assert tool_results_in(loop, 2)[1].endswith("sunny")


async def test_the_model_may_retry_a_limited_number_of_times(client: Client) -> None:
    save = a_tool("save", strategy="llm_recovery", max_recovery_attempts=2)
    steps = [calls("save", arguments={"n": n}) for n in range(4)]
    async with a_loop(client, [*steps, answers()], save) as loop:
        ran = await loop.run()
    assert len(save.contexts) == 3
    assert "2 more failures" in tool_results_in(loop, 1)[0]
    assert "1 more failures" in tool_results_in(loop, 2)[1]
    assert tool_results_in(loop, 3)[2].endswith("save is not called again in this run; go on without it.")
    assert tool_results_in(loop, 4)[3] == "[Recovery] save is not called again in this run; go on without it."
    assert (ran.result.tool_calls.run, ran.result.tool_calls.not_run) == (3, 1)


async def test_a_success_resets_the_retries_of_the_model(client: Client) -> None:
    def odd(arguments: dict[str, Any], context: ToolContext) -> str:
        if arguments["n"] % 2 == 0:
            raise ToolError("even")
        return "ok"

    save = a_tool("save", odd, strategy="llm_recovery", max_recovery_attempts=1)
    steps = [calls("save", arguments={"n": n}) for n in range(5)]
    async with a_loop(client, [*steps, answers()], save) as loop:
        await loop.run()
    assert len(save.contexts) == 5


@pytest.mark.parametrize(
    ("choice", "expected", "reason"),
    [
        pytest.param({"choice": "skip"}, "[Error] ToolError: the disk is full", "completed", id="skip"),
        pytest.param(
            {"choice": "result", "result": "it is 42"},
            "[Result from the operator]\nit is 42",
            "completed",
            id="a result from the operator",
        ),
        pytest.param({"choice": "retry"}, "saved", "completed", id="retry, the disk is repaired"),
        pytest.param({"choice": "abort", "reason": "no disk"}, None, "escalated", id="end the run"),
    ],
)
async def test_a_person_decides_about_a_failed_call(
    client: Client, choice: dict[str, Any], expected: str | None, reason: str
) -> None:
    def until_repaired(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(save.contexts) == 1:
            raise ToolError("the disk is full")
        return "saved"

    save = a_tool("save", until_repaired, strategy="escalate", queue="storage")
    async with a_loop(client, [calls("save"), answers()], save) as loop:
        handle = await loop.start()
        wait = await wait_for_question(handle)
        assert (wait["kind"], wait["queue"], wait["data"]["error"]) == (
            "escalation",
            "storage",
            "ToolError: the disk is full",
        )
        given = {"escalation_id": wait["wait_id"], "by": "ada", **choice}
        await send_update(handle, "resolve_escalation", given)
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == reason
    if expected is not None:
        assert tool_results_in(loop) == [expected]
    assert [(e.data["kind"], e.data.get("choice")) for e in asked(ran)] == [
        ("escalation", None),
        ("escalation", choice["choice"]),
    ]
    assert len({context.idempotency_key for context in save.contexts}) == 1


def asked(ran: Ran) -> list[JournalEntry]:
    return [entry for entry in ran.journal if entry.event in {"ApprovalRequested", "ApprovalResolved"}]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({"escalation_id": "nothing", "choice": "skip"}, "no escalation 'nothing'", id="unknown"),
        pytest.param({"escalation_id": "call-1.0-0", "choice": "maybe"}, "choice", id="no such choice"),
        pytest.param("skip", "input", id="not an object"),
    ],
)
async def test_an_invalid_decision_is_refused_and_changes_nothing(client: Client, given: Any, says: str) -> None:
    save = a_tool("save", strategy="escalate")
    async with a_loop(client, [calls("save"), answers()], save) as loop:
        handle = await loop.start()
        await wait_for_question(handle)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await send_update(handle, "resolve_escalation", given)
        assert says in str(refused.value.cause)
        await send_update(handle, "resolve_escalation", {"escalation_id": "call-1.0-0", "choice": "skip"})
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == "completed"


async def test_an_abort_ends_a_run_that_waits_for_a_person(client: Client) -> None:
    async with a_loop(client, [calls("save"), answers()], a_tool("save", strategy="escalate")) as loop:
        handle = await loop.start()
        await wait_for_question(handle)
        await handle.signal("abort", "enough")
        ran = await loop.ended(handle)
    assert (ran.result.termination.reason, ran.result.tool_calls.failed) == ("aborted", 1)


async def test_a_dead_letter_is_kept_and_requeued_with_its_key(client: Client) -> None:
    def later(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(save.contexts) == 1:
            raise ToolError("down")
        return "saved at last"

    save = a_tool("save", later, strategy="dead_letter")
    hold = FakeTool("wait", lambda a, c: waits_for_requeue())
    letters: list[dict[str, Any]] = []

    async def waits_for_requeue() -> str:
        letters.extend((await handle.query("status"))["dead_letters"])
        await send_update(handle, "requeue", letters[0]["letter_id"])
        return "requeued"

    async with a_loop(client, [calls("save", arguments={"n": 1}), calls("wait"), answers()], save, hold) as loop:
        handle = await loop.start()
        ran = await loop.ended(handle)
    assert [(letter["letter_id"], letter["error"]) for letter in letters] == [("1.0", "ToolError: down")]
    assert isinstance(loop.provider, ScriptedModel)
    assert undelimited_text(loop.provider.seen[2].messages[-1].text) == (
        "[Requeued call] save (1.0), sent again by an operator:\nsaved at last"
    )
    assert len({context.idempotency_key for context in save.contexts}) == 1
    assert [what[1] for what in triggered(ran)] == ["dead_letter", "requeue"]


async def test_an_unknown_dead_letter_is_refused(client: Client) -> None:
    async def asks() -> str:
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await send_update(handle, "requeue", "9.9")
        assert "no dead letter '9.9'" in str(refused.value.cause)
        return "refused"

    async with a_loop(client, [calls("wait"), answers()], FakeTool("wait", lambda a, c: asks())) as loop:
        handle = await loop.start()
        ran = await loop.ended(handle)
    assert ran.result.tool_calls.failed == 0
