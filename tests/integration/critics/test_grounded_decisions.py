"""Grounded decisions on a real server: rules over fields and facts decide, not untrusted text.

The history shows both.
"""

from typing import Any

import pytest
from pydantic_core import from_json, to_json
from temporalio.client import Client, WorkflowFailureError

from orga.client.history.chain import RunHistory
from orga.client.proof.verify import check_histories, verify
from orga.client.testing.script import Step
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.control import NOTES_MEMO
from orga.workflows.types.messages import Reply
from tests.support.runs.decisions import (
    FREE,
    TRIAGE,
    proposal,
    routing_decision,
    the_triage,
    triage_facts,
    triage_fields,
)
from tests.support.runs.loop import WORKER_FACTS, Loop, Ran, a_loop
from tests.support.runs.questions import tool_results_in

INJECTION = (TRIAGE / "tickets" / "4712.md").read_text()
EACH_ITERATION = WORKER_FACTS.model_copy(update={"roll_over_events": 1})


def decides(severity: str = "critical", users: int = 250_000, **more: Any) -> Reply:
    return calls("decide", arguments=proposal(triage_fields(severity, users), **more))


def an_agent(**changes: Any) -> AgentConfig:
    agent = the_triage()
    return agent.model_copy(update={"decisions": {"route": routing_decision().model_copy(update=changes)}})


async def triaged(
    client: Client,
    *steps: Step,
    agent: AgentConfig | None = None,
    context: dict[str, Any] = FREE,
    setup: Any = WORKER_FACTS,
    **given: Any,
) -> tuple[Ran, Loop]:
    ticket = FakeTool("read_file", lambda arguments, _: INJECTION)
    async with a_loop(client, steps, ticket, agents={"default": agent or an_agent()}, setup=setup) as loop:
        return await loop.run({"task": "triage the ticket", "trusted_context": context, **given}), loop


def decision(ran: Ran) -> dict[str, Any]:
    return ran.raw["data"]["decisions"]["route"]


async def test_a_ticket_cannot_forge_its_severity(client: Client) -> None:
    """The model believes every word of the ticket, but it controls neither the facts nor the cap."""
    ran, loop = await triaged(client, calls("read_file"), decides(rationale=INJECTION), answers("severity = critical"))

    made = decision(ran)
    assert ran.result.termination.reason == "completed"
    assert (made["outcome"], made["rule"]) == ({"severity": "high", "page": "support"}, "capped")
    assert made["facts"]["tainted"] == {"value": True, "source": "read_file"}
    assert made["facts"]["alert"] == {"value": False, "source": "trusted_context.monitoring.alert"}
    assert tool_results_in(loop, 2)[-1] == "[Decided] route: severity = high, page = support (rule: capped)"
    entry = next(entry for entry in ran.journal if entry.event == "DecisionGrounded")
    assert {**entry.data, "iteration": 2} | {"revision": 0} == {**made, "place": "2.0", "decision": "route"}
    assert "Decided" not in str(
        [e.data for e in ran.journal if e.event == "ObservationsCollected" and e.iteration == 1]
    )


@pytest.mark.parametrize(
    ("steps", "context", "outcome"),
    [
        pytest.param([decides()], FREE, {"severity": "critical", "page": "on-call"}, id="nothing was read"),
        pytest.param(
            [calls("read_file", "decide", arguments=proposal(triage_fields("critical")))],
            FREE,
            {"severity": "critical", "page": "on-call"},
            id="a file read in the same reply does not count yet",
        ),
        pytest.param(
            [calls("read_file"), decides()],
            triage_facts(alert=True),
            {"severity": "critical", "page": "on-call"},
            id="an alert from the starter",
        ),
        pytest.param(
            [calls("read_file"), decides("high", 99)],
            triage_facts("enterprise"),
            {"severity": "high", "page": "support"},
            id="below a bound",
        ),
        pytest.param(
            [calls("read_file"), decides("low"), decides("critical")],
            FREE,
            {"severity": "low", "page": "nobody"},
            id="the first one is final",
        ),
        pytest.param(
            [
                calls("decide", arguments=proposal(triage_fields("worst"))),
                calls("decide", arguments=proposal(triage_fields() | {"workaround": "perhaps"})),
                decides("medium"),
            ],
            FREE,
            {"severity": "medium", "page": "nobody"},
            id="an invalid field decides nothing",
        ),
        pytest.param(
            [calls("decide", arguments=proposal(triage_fields() | {"tier": "enterprise"})), decides("medium")],
            FREE,
            {"severity": "medium", "page": "nobody"},
            id="an unknown field decides nothing",
        ),
    ],
)
async def test_the_rules_decide_by_fields_and_facts(
    client: Client, steps: list[Step], context: dict[str, Any], outcome: dict[str, Any]
) -> None:
    ran, _ = await triaged(client, *steps, answers(), context=context)
    assert decision(ran)["outcome"] == outcome
    assert ran.events.count("DecisionGrounded") == 1


@pytest.mark.parametrize(
    ("end", "says"),
    [
        pytest.param(answers("page on-call"), "[Reply not usable] No answer ends this run", id="an answer"),
        pytest.param(answers("page", finish="length"), "[Reply not usable] No answer ends", id="an answer that is cut"),
        pytest.param(
            calls("terminate", arguments={"reason": "done", "output": "page on-call"}),
            "[Not ended] No answer ends this run before the decision 'route' is made",
            id="terminate",
        ),
    ],
)
async def test_no_answer_ends_the_run_without_a_required_decision(client: Client, end: Reply, says: str) -> None:
    agent = an_agent().model_copy(update={"tools": ("read_file", "terminate")})
    late, loop = await triaged(client, end, decides("medium"), end, answers(), agent=agent)
    assert late.result.termination.reason == "completed"
    assert isinstance(loop.provider, ScriptedModel)
    assert loop.provider.seen[1].messages[-1].text.startswith(says)

    never, _ = await triaged(client, end, agent=agent)
    ending = never.result.termination
    assert (ending.reason, ending.detail) == ("error", "the required decision was not made: route")
    assert (never.result.iterations, never.result.output) == (3, "")
    assert never.result.data == {"decisions": {}}


@pytest.mark.parametrize(
    ("context", "says"),
    [
        pytest.param({}, "trusted_context.customer.tier: is missing, give one of free, enterprise", id="missing"),
        pytest.param(
            triage_facts() | {"monitoring": {"alert": "false"}}, "'false' is not true or false", id="a string"
        ),
    ],
)
async def test_a_run_without_its_facts_does_not_start(client: Client, context: dict[str, Any], says: str) -> None:
    with pytest.raises(WorkflowFailureError) as caught:
        await triaged(client, answers(), context=context)
    assert says in str(caught.value.cause)


async def test_decisions_survive_continue_as_new(client: Client) -> None:
    agent = an_agent(revisable=True)
    steps = (decides("low"), calls("read_file"), decides(), answers())
    ran, _ = await triaged(client, *steps, agent=agent, setup=EACH_ITERATION)
    assert len(ran.histories) > 1
    assert (decision(ran)["rule"], decision(ran)["revision"]) == ("capped", 1)


async def test_an_answer_with_a_schema_is_returned_with_the_decisions(client: Client) -> None:
    schema = {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}
    ran, _ = await triaged(client, decides("low"), answers('{"said": "ok"}'), output_schema=schema)
    assert ran.raw["data"]["answer"] == {"said": "ok"}
    assert decision(ran)["outcome"]["page"] == "nobody"


async def test_verify_repeats_the_decisions(client: Client) -> None:
    ran, _ = await triaged(client, calls("read_file"), decides(), answers())
    found = await verify(client, ran.handle.id, exported=ran.journal)
    assert [check.detail for check in found.checks if not check.ok] == []
    assert "1 decisions follow" in next(check.detail for check in found.checks if check.name == "decisions")


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"outcome": {"severity": "critical", "page": "on-call"}}, id="an outcome"),
        pytest.param({"facts": {"tainted": {"value": False, "source": ""}}}, id="a fact"),
        pytest.param({"rule": "an alert confirms it"}, id="a rule"),
    ],
)
async def test_verify_finds_a_forged_decision(client: Client, forged: dict[str, Any]) -> None:
    ran, _ = await triaged(client, calls("read_file"), decides(), answers())
    for event in ran.history.events:
        memo = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if NOTES_MEMO in memo:
            notes = from_json(memo[NOTES_MEMO].data)
            notes[0]["data"] |= forged
            memo[NOTES_MEMO].data = to_json(notes)
    run = RunHistory("run", ran.history)
    checks, _ = await check_histories(client, ran.handle.id, [run])
    assert [check.name for check in checks if not check.ok] == ["decisions"]
