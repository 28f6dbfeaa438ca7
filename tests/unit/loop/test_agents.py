"""Agents from configuration: the setup of a run, and errors in the input of its starter."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.models.conversations import Conversations
from orga.activities.prepare import PastActivities, PrepareActivities
from orga.client.past.fork import RunPasts
from orga.workflows.types.agents import DEFAULT_INSTRUCTIONS, READ_ONLY_TOOLS, AgentConfig
from orga.workflows.types.goals.pipelines import Pipeline
from orga.workflows.types.input import LoopConfig, Recovery
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.setup import PrepareRequest, Setup
from tests.support.tools.activities import Beats, NoHistory
from tests.support.values.core import a_setup, a_spec

TOOLS = {name: a_spec(name) for name in (*READ_ONLY_TOOLS, "write_file")}
FACTS = a_setup(policy="house rules", roll_over_events=50)
CODER = AgentConfig(
    model="openai:gpt-5",
    instructions="write code",
    tools=("read_file", "write_file", "gone"),
    config=LoopConfig(max_iterations=7, timeout_s=60, recovery=Recovery(max_attempts=5, base_delay_ms=100)),
)

A_CODERS_RUN: dict[str, Any] = {"agent": "coder", "tools": ("read_file",)}


def check_model(name: str) -> None:
    if not name.startswith(("openai:", "offline:")):
        raise ValueError(f"{name!r} names no provider")


AGENTS = ConfiguredAgents({"coder": CODER}, TOOLS, "offline:extractive", check_model, FACTS)


async def test_the_default_agent_always_exists() -> None:
    setup = await AGENTS.setup(PrepareRequest())
    assert (setup.agent, setup.model, setup.instructions) == ("default", "offline:extractive", DEFAULT_INSTRUCTIONS)
    assert tuple(tool.name for tool in setup.tools) == READ_ONLY_TOOLS
    assert setup.config == LoopConfig()


async def test_the_setup_contains_the_worker_s_own_facts() -> None:
    setup = await AGENTS.setup(PrepareRequest())
    assert (setup.policy, setup.roll_over_events) == ("house rules", 50)


async def test_a_configured_default_agent_replaces_the_built_in_one() -> None:
    agents = ConfiguredAgents({"default": AgentConfig(tools=())}, TOOLS, "offline:x", check_model, FACTS)
    assert (await agents.setup(PrepareRequest())).tools == ()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, {"model": "openai:gpt-5", "instructions": "write code"}, id="nothing: the agent's own"),
        pytest.param({"model": "offline:x"}, {"model": "offline:x"}, id="a model"),
        pytest.param({"instructions": "be kind"}, {"instructions": "be kind"}, id="instructions"),
        pytest.param({"instructions": ""}, {"instructions": ""}, id="empty instructions"),
        pytest.param({"tools": ()}, {"tools": ()}, id="no tools"),
        pytest.param({"tools": ("write_file",)}, {"tools": (TOOLS["write_file"],)}, id="a part of the tools"),
        pytest.param({"tools": ("read_file",) * 2}, {"tools": (TOOLS["read_file"],)}, id="a tool named twice"),
    ],
)
async def test_the_input_of_a_run_wins_over_its_agent(given: dict[str, Any], expected: dict[str, Any]) -> None:
    setup = await AGENTS.setup(PrepareRequest(**A_CODERS_RUN | given))
    assert {key: getattr(setup, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, CODER.config, id="nothing: the agent's own"),
        pytest.param({"max_iterations": 3}, CODER.config.model_copy(update={"max_iterations": 3}), id="one key"),
        pytest.param(
            {"max_iterations": 25}, CODER.config.model_copy(update={"max_iterations": 25}), id="a default on purpose"
        ),
        pytest.param(
            {"recovery": {"max_attempts": 9}},
            CODER.config.model_copy(update={"recovery": Recovery(max_attempts=9, base_delay_ms=100)}),
            id="one key of recovery",
        ),
    ],
)
async def test_the_config_of_a_run_wins_over_its_agent_key_by_key(given: dict[str, Any], expected: LoopConfig) -> None:
    setup = await AGENTS.setup(PrepareRequest(agent="coder", tools=(), config=given))
    assert setup.config == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(
            {"agent": "codr"},
            "agent: there is no agent 'codr'; did you mean 'coder'? there are: coder, default",
            id="an agent",
        ),
        pytest.param({"agent": "xyz"}, "agent: there is no agent 'xyz'; there are: coder, default", id="a far name"),
        pytest.param({"model": "gpt-5"}, "model: 'gpt-5' names no provider", id="a model"),
        pytest.param(
            {"tools": ("rm",)},
            "tools: agent 'default' does not list 'rm'; there are: list_files, read_file, search_text",
            id="an unknown tool",
        ),
        pytest.param(
            {"tools": ("write_file",)},
            "tools: agent 'default' does not list 'write_file'; ",
            id="a tool that the agent does not list",
        ),
        pytest.param({"agent": "coder"}, "tools: this worker has no tool 'gone'; ", id="a tool that the worker lacks"),
    ],
)
async def test_an_unknown_name_is_refused_with_the_valid_names(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await AGENTS.setup(PrepareRequest(**given))
    assert str(caught.value).startswith(message)


OUT: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
ONE_STRING: dict[str, Any] = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"output_schema": OUT, "model": "openai:x"}, OUT, id="any schema"),
        pytest.param({"output_schema": {}, "model": "openai:x"}, {}, id="the empty schema"),
        pytest.param({"output_schema": ONE_STRING}, ONE_STRING, id="one string, which the offline reader can fill"),
    ],
)
async def test_the_schema_of_the_answer_is_recorded(given: dict[str, Any], schema: dict[str, Any] | None) -> None:
    setup = await AGENTS.setup(PrepareRequest(**given))
    assert setup.output_schema == schema
    assert ("output_schema" in setup.model_fields_set) is (schema is not None)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        pytest.param({"type": "objct"}, "cannot be used, its schema is invalid: ", id="no schema"),
        pytest.param(
            {"$ref": "https://example.com/s"}, "cannot be used, its schema is invalid: ", id="another document"
        ),
        pytest.param(
            {"properties": {"a": {"$ref": "other.json#/x"}}}, "cannot be used, its schema is invalid: ", id="a file"
        ),
        pytest.param({"pattern": "(a)\\1"}, "cannot be used, its schema is invalid: ", id="a pattern that could hang"),
        pytest.param(OUT, "offline:extractive can fill a string or an object of one string only", id="offline"),
    ],
)
async def test_an_unusable_schema_is_refused(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await AGENTS.setup(PrepareRequest(output_schema=schema))
    assert str(caught.value).startswith(f"output_schema: {message}")


@pytest.mark.parametrize(
    ("activity", "mistake", "message"),
    [
        pytest.param(
            PrepareActivities(AGENTS, Conversations(NoHistory())).prepare,
            PrepareRequest(agent="x"),
            "there is no agent 'x'",
            id="an unknown agent",
        ),
        pytest.param(
            PastActivities(RunPasts(cast("Any", None))).read_past, {"fork": {}}, "workflow_id", id="a fork of nothing"
        ),
    ],
)
async def test_a_mistake_of_the_starter_is_final_and_logs_no_traceback(
    activity: Callable[[Any], Awaitable[object]], mistake: object, message: str
) -> None:
    with pytest.raises(ApplicationError, match=message) as caught:
        await Beats().run(activity, mistake)
    assert (caught.value.type, caught.value.non_retryable) == ("InvalidInput", True)
    assert caught.value.category is ApplicationErrorCategory.BENIGN


async def test_the_worker_that_prepared_a_run_keeps_its_setup() -> None:
    conversations = Conversations(NoHistory())
    setup = await Beats().run(PrepareActivities(AGENTS, conversations).prepare, PrepareRequest())
    assert conversations._setups.size > 0
    assert setup == await AGENTS.setup(PrepareRequest())


class Prepared:
    """Agents that return the same setup for every run."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    async def setup(self, request: PrepareRequest, *, is_goal: bool = False) -> Setup:
        return self._setup


async def test_a_setup_that_is_too_large_is_refused_with_the_sizes_of_its_parts() -> None:
    line = {"kind": "chain", "steps": [{"agent": "writer", "task": "x" * 2_000}] * 15}
    setup = a_setup(instructions="y" * 500_000).with_pipeline(Pipeline.model_validate(line))
    prepare = PrepareActivities(Prepared(setup), Conversations(NoHistory())).prepare
    with pytest.raises(ApplicationError, match=r"\(instructions 500002, pipeline 30\d\d\d, tools ") as caught:
        await Beats().run(prepare, PrepareRequest())
    assert caught.value.non_retryable
