"""The schemas of goal prompts are sent to providers that enforce them. All others get only the prompts."""

from typing import Any

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models.schema_shape import is_strict
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.models.model_calls import REPLY_SCHEMAS
from orga.workflows.decisions.goals.plans import parsed_plan
from orga.workflows.decisions.goals.replies import parsed_evaluations, parsed_goal_decision
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.goals import GOOD, a_step
from tests.support.model.providers import (
    a_request,
    chunk,
    complete_request,
    message_events,
    stream_response,
    text_block,
)

SEARCH = ToolSpec(name="search", description="Find it.", parameters={"type": "object"})
STEP = a_step("a", at=1)
EVALUATION = {"id": "a", "quality": "good", "summary": "found", **GOOD}
DECISION = {"action": "adjust", "confidence": 0.5, "reason": "more", "steps": [STEP], "memory": None}


def ok() -> http.Response:
    return stream_response(chunk("stop", content="{}"), "[DONE]")


async def bodies(kind: str, turn: str, *answers: http.Response) -> list[dict[str, Any]]:
    request = a_request(tools=(SEARCH,), tool_choice="none", reply_schema=REPLY_SCHEMAS[turn])
    _, _, network = await complete_request(kind, *(answers or (ok(),)), request=request)
    return [network.body(index) for index in range(len(network.requests))]


@pytest.mark.parametrize("turn", REPLY_SCHEMAS)
async def test_openai_enforces_the_schema_of_each_prompt(turn: str) -> None:
    [body] = await bodies("openai", turn)
    asked = body["response_format"]["json_schema"]
    assert asked["schema"] == REPLY_SCHEMAS[turn]
    assert asked["strict"] == (turn in {"goal_evaluate", "goal_compress"})
    assert body["tool_choice"] == "none"


@pytest.mark.parametrize("turn", REPLY_SCHEMAS)
async def test_anthropic_enforces_only_closed_schemas(turn: str) -> None:
    request = a_request(tools=(SEARCH,), tool_choice="none", reply_schema=REPLY_SCHEMAS[turn])
    _, _, network = await complete_request(
        "anthropic", stream_response(*message_events(text_block("{}"))), request=request
    )
    asked = {"output_config": {"format": {"type": "json_schema", "schema": REPLY_SCHEMAS[turn]}}}
    is_closed = turn in {"goal_evaluate", "goal_compress"}
    assert {key: value for key, value in network.body().items() if key in asked} == (asked if is_closed else {})
    assert network.body()["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama", "openrouter"])
async def test_other_providers_get_no_schema(kind: str) -> None:
    [body] = await bodies(kind, "goal_plan")
    assert "response_format" not in body
    assert [tool["function"]["name"] for tool in body["tools"]] == ["search"]


async def test_a_model_that_refuses_the_schema_is_asked_without_it() -> None:
    refusal = http.Response(
        400, json={"error": {"message": "'response_format' of type 'json_schema' is not supported"}}
    )
    first, second = await bodies("openai", "goal_plan", refusal, ok())
    assert ("response_format" in first, "response_format" in second) == (True, False)


@pytest.mark.parametrize(
    ("turn", "reply"),
    [
        pytest.param("goal_plan", {"steps": [STEP], "memory": None}, id="a plan"),
        pytest.param("goal_evaluate", {"steps": [EVALUATION], "memory": None}, id="an evaluation"),
        pytest.param("goal_decide", DECISION, id="a decision"),
        pytest.param("goal_compress", {"memory": "short"}, id="a memory"),
    ],
)
def test_accepted_replies_match_the_schema(turn: str, reply: dict[str, Any]) -> None:
    assert argument_errors(REPLY_SCHEMAS[turn], reply) == []
    assert argument_errors(REPLY_SCHEMAS[turn], {"other": 1}) != []


def test_replies_that_match_the_schema_are_read() -> None:
    assert [step.id for step in parsed_plan([STEP], {"look": ""}, 8)] == ["a"]
    assert parsed_evaluations({"steps": [EVALUATION], "memory": None}, ("a",))["a"].scores.mean > 4
    assert parsed_goal_decision(DECISION).action == "adjust"
    assert is_strict(REPLY_SCHEMAS["goal_evaluate"])
