"""Final answers under a schema on a real server: repaired, bounded, and in the result as JSON."""

from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client, WorkflowFailureError

from orga import start_agent
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.record import InvalidInput
from tests.support.runs.loop import a_loop

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TASK = {"task": "count", "output_schema": SCHEMA}


@pytest.mark.parametrize(
    ("text", "data"),
    [
        pytest.param('{"n": 3}', {"n": 3}, id="JSON"),
        pytest.param('```json\n{"n": 3}\n```', {"n": 3}, id="JSON in a fence"),
    ],
)
async def test_a_valid_answer_is_in_the_result_as_data(client: Client, text: str, data: Any) -> None:
    provider = ScriptedModel([calls("count"), answers(text)], repeats=True)
    async with a_loop(client, provider, FakeTool("count")) as loop:
        ran = await loop.run(TASK)

    assert (ran.result.data, ran.result.output, ran.result.termination.reason) == (data, text, "completed")
    assert [request.output_schema for request in provider.seen] == [SCHEMA, SCHEMA]


async def test_an_answer_that_violates_the_schema_is_repaired(client: Client) -> None:
    provider = ScriptedModel([answers("three"), answers('{"n": "3"}'), answers('{"n": 3}')], repeats=True)
    async with a_loop(client, provider) as loop:
        ran = await loop.run(TASK)

    assert (ran.result.data, ran.result.iterations) == ({"n": 3}, 3)
    reported = [request.messages[-1].text for request in provider.seen[1:]]
    assert "the final answer does not fit the schema: it is not JSON alone" in reported[0]
    assert '$.n: "3" is not of type "integer"' in reported[1]


async def test_an_answer_with_a_duplicate_key_is_repaired(client: Client) -> None:
    """A parser takes the last value, but a person may have read the first."""
    provider = ScriptedModel([answers('{"n": 3, "n": 4}'), answers('{"n": 3}')], repeats=True)
    async with a_loop(client, provider) as loop:
        ran = await loop.run(TASK)

    assert (ran.result.data, ran.result.iterations) == ({"n": 3}, 2)
    assert "it is not JSON with each key once: the key 'n' is used twice" in provider.seen[1].messages[-1].text


async def test_repairs_are_bounded(client: Client) -> None:
    provider = ScriptedModel([answers("three")], repeats=True)
    async with a_loop(client, provider) as loop:
        ran = await loop.run(TASK)

    assert (ran.result.termination.reason, ran.result.data, len(provider.seen)) == ("error", None, 3)
    assert "does not fit the schema" in ran.result.termination.detail


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "objct"}, id="an invalid schema"),
        pytest.param({"$ref": "https://example.com/schema"}, id="a reference to another document"),
    ],
)
async def test_an_unusable_schema_ends_the_run_before_the_first_model_call(client: Client, schema: Any) -> None:
    provider = ScriptedModel([answers("{}")], repeats=True)
    async with a_loop(client, provider) as loop:
        handle = await loop.start({"task": "count", "output_schema": schema})
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()

    assert "output_schema: cannot be used, its schema is invalid" in str(caught.value.cause)
    assert provider.seen == []


class Count(BaseModel):
    n: int


async def test_a_type_in_place_of_a_schema_gives_a_value_of_the_type(client: Client) -> None:
    provider = ScriptedModel([answers('{"n": "3"}'), answers('{"n": 3}')], repeats=True)
    async with a_loop(client, provider) as loop:
        handle = await start_agent(loop.client, {"task": "count", "output_schema": Count}, task_queue=loop.task_queue)
        result = await handle.result()
    assert result.data_as(Count) == Count(n=3)
    assert provider.seen[0].output_schema == Count.model_json_schema()
    with pytest.raises(InvalidInput, match=r"the result is no list: .*list.*; it is '{\"n\": 3}'"):
        result.data_as(list)


@pytest.mark.parametrize("given", [5, "Count", len], ids=str)
async def test_what_is_neither_a_schema_nor_a_type_is_refused_before_the_start(client: Client, given: object) -> None:
    with pytest.raises(InvalidInput, match="output_schema"):
        await start_agent(client, {"task": "count", "output_schema": given}, task_queue="nobody")
