"""The scripted model and fake tools of `orga.testing`, and the related builders."""

from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel

from orga.activities.ports import ToolContext, ToolError
from orga.client.config.sections import OrgaConfig
from orga.client.errors import ConfigError
from orga.client.testing.environment import PluginUnderTest
from orga.client.testing.script import USAGE, ScriptedModels
from orga.client.workers.parts import StandIns, configured_parts
from orga.testing import (
    FakeTool,
    ModelError,
    ModelRequest,
    ScriptedModel,
    Usage,
    agent_input,
    answers,
    calls,
    forbids,
    orga_config,
    permanent,
    permits,
    policy_folder,
    scripted,
    together,
    transient,
)
from orga.workflows.decisions.conversation import with_calibration
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolSpec
from tests.support.values.core import a_state

MODELS = ScriptedModels({})
ASKED = ModelRequest("m", messages=(Message.of("user", "find it"),), tools=(ToolSpec(name="search"),))


async def replies_of(model: ScriptedModel, times: int = 1) -> list[str]:
    return [(await model.complete(ASKED, lambda text: None)).text for _ in range(times)]


async def test_a_script_is_played_in_order_and_recorded() -> None:
    model = scripted(answers("one"), lambda request: answers(f"{len(request.tools)} tools"))
    assert await replies_of(model, 2) == ["one", "1 tools"]
    assert (model.left, model.seen, model.exhausted) == (0, [ASKED, ASKED], "")


async def test_a_script_that_is_too_short_reports_the_last_request() -> None:
    model = scripted(answers())
    await replies_of(model)
    with pytest.raises(ModelError, match=r"1 steps, .* once more: 1 messages, the last user: 'find it'.*search"):
        await replies_of(model)
    assert model.exhausted


async def test_a_script_can_repeat_its_last_step() -> None:
    assert await replies_of(scripted(answers("a"), answers("b"), repeats=True), 3) == ["a", "b", "b"]


async def test_a_step_can_fail() -> None:
    with pytest.raises(ModelError, match="busy"):
        await replies_of(scripted(ModelError("Overloaded", "busy", retryable=True)))


def test_arguments_of_calls_are_given_by_name_or_as_a_mapping() -> None:
    (call,) = calls("search", q="lamps", arguments={"text": "x"}).calls
    assert (call.name, call.arguments) == ("search", {"q": "lamps", "text": "x"})


def test_every_named_argument_belongs_to_the_tool() -> None:
    reply = calls("send_letter", text="Dear Ada", cost_usd=3, usage="u", reply_text="I write.", reply_cost_usd=0.5)
    assert reply.calls[0].arguments == {"text": "Dear Ada", "cost_usd": 3, "usage": "u"}
    assert (reply.text, reply.cost_usd) == ("I write.", 0.5)


def test_a_step_reports_the_given_usage() -> None:
    counted = Usage(input_tokens=7_000, output_tokens=3)
    assert answers("done", usage=counted).usage == calls("search", reply_usage=counted).usage == counted
    assert answers("done", usage={"input_tokens": 7_000, "output_tokens": 3}).usage == counted
    with pytest.raises(ValueError, match="input"):
        answers("done", usage={"input": 7_000})


@pytest.mark.parametrize("step", [answers(), calls("search"), together(calls("search"), calls("search"))])
async def test_the_default_usage_of_a_step_does_not_change_the_calibration(step: Reply) -> None:
    asked = ModelRequest("m", system=("i" * 3_000,), messages=(Message.of("user", "find it" * 3_000),))
    usage = (await scripted(step).complete(asked, lambda text: None)).usage
    assert (usage.input_tokens + usage.output_tokens) == 110
    sent = Conversation(tokens=7_000, frame=1_000)
    assert with_calibration(a_state(), sent, usage.input_tokens).calibration == 1.0
    reported = answers(usage=Usage(input_tokens=4_000))
    told_usage = (await scripted(reported).complete(asked, lambda text: None)).usage
    assert with_calibration(a_state(), sent, told_usage.input_tokens).calibration == 0.75


def test_calls_of_one_reply_have_different_ids() -> None:
    reply = together(calls("search", q="a"), calls("search", q="b", reply_text="both"))
    assert [(call.call_id, call.arguments["q"]) for call in reply.calls] == [("search_0", "a"), ("search_1", "b")]
    assert reply.text == "both"


def test_the_usage_of_calls_of_one_reply_is_summed() -> None:
    first = calls("a", reply_usage={"input_tokens": 900}, reply_cost_usd=0.5)
    reply = together(first, calls("b"), calls("c", reply_usage={"output_tokens": 7}, reply_cost_usd=0.25))
    assert (reply.usage, reply.cost_usd) == (Usage(input_tokens=900, output_tokens=7), 0.75)
    assert (together(calls("a"), calls("b")).usage, together(calls("a")).cost_usd) == (USAGE, None)


def test_a_model_without_a_script_is_refused() -> None:
    models = ScriptedModels({"openai:a": scripted(answers())})
    assert models.default == "openai:a"
    with pytest.raises(ValueError, match="no script replaces the model 'openai:b'; there is openai:a"):
        models.check("openai:b")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(lambda: scripted(answers(), cast("Any", "hello")), "step 2 is 'hello'", id="text as a step"),
        pytest.param(lambda: ScriptedModels(cast("Any", [answers()])), "list is no model", id="steps as a model"),
        pytest.param(lambda: ScriptedModels({"a:b": cast("Any", answers())}), "Reply is no model", id="a reply"),
        pytest.param(lambda: FakeTool("pay", []), "an empty list has no result", id="no result"),
        pytest.param(
            lambda: PluginUnderTest(MODELS, cast("Any", FakeTool("pay")), config=OrgaConfig()), "fakes=[", id="one fake"
        ),
        pytest.param(
            lambda: PluginUnderTest(MODELS, cast("Any", [attempt]), config=OrgaConfig()), "fakes=[", id="a function"
        ),
    ],
)
def test_mistakes_of_a_test_are_reported_at_once(make: Callable[[], object], expected: str) -> None:
    with pytest.raises((ConfigError, ValueError)) as caught:
        make()
    assert expected in str(caught.value)


async def attempt(tool: FakeTool, **arguments: Any) -> str:
    return (await tool.call(arguments, ToolContext("c", "key"))).content


async def test_a_fake_tool_fails_as_scripted_for_each_attempt() -> None:
    tool = FakeTool("pay", [transient("busy"), permanent("no account"), "paid"])
    failures = [await _failure(tool, cents=n) for n in range(2)]
    assert [(str(failure), failure.retryable) for failure in failures] == [("busy", True), ("no account", False)]
    assert [await attempt(tool, cents=2), await attempt(tool, cents=3)] == ["paid", "paid"]
    assert tool.calls == [{"cents": n} for n in range(4)]


async def _failure(tool: FakeTool, **arguments: Any) -> ToolError:
    with pytest.raises(ToolError) as failure:
        await attempt(tool, **arguments)
    return failure.value


async def test_a_fake_tool_can_be_a_function() -> None:
    async def double(arguments: dict[str, Any], context: ToolContext) -> int:
        return arguments["n"] * 2

    assert await attempt(FakeTool("double", double), n=2) == "4"


def test_a_fake_tool_has_the_spec_of_the_tool_that_it_replaces(tmp_path: Path) -> None:
    parts = configured_parts(
        OrgaConfig(),
        {},
        tmp_path,
        knows_attributes=False,
        stand_ins=StandIns(ScriptedModels(scripted()), [FakeTool("write_file"), FakeTool("new")]),
    )
    specs = {tool.spec.name: tool.spec for tool in parts.tools}
    assert "content" in specs["write_file"].parameters["properties"]
    assert (specs["write_file"].effect, specs["new"].effect) != ("read_only", "")
    assert specs["new"].parameters == {"type": "object"}


def test_a_fake_tool_can_have_its_own_options(tmp_path: Path) -> None:
    fakes = [FakeTool("new", options={"timeout_s": 7}), FakeTool("write_file", options=ToolOptions(max_attempts=9))]
    config = orga_config(
        "[tools.options.new]\ntimeout_s = 3\nmax_attempts = 2\n[tools.options.write_file]\ntimeout_s = 4"
    )
    standing_in = StandIns(ScriptedModels(scripted()), fakes)
    parts = configured_parts(config, {}, tmp_path, knows_attributes=False, stand_ins=standing_in)
    options = {tool.spec.name: tool.spec.options for tool in parts.tools}
    assert (options["new"].timeout_s, options["new"].max_attempts) == (7, 2)
    assert (options["write_file"].timeout_s, options["write_file"].max_attempts) == (4, 9)
    with pytest.raises(InvalidInput, match="timeout: unknown key"):
        FakeTool("new", options={"timeout": 7})
    with pytest.raises(ValueError, match="options for 'other': there is no such tool"):
        configured_parts(
            orga_config("[tools.options.other]"), {}, tmp_path, knows_attributes=False, stand_ins=standing_in
        )


async def test_the_result_of_a_fake_tool_is_complete_before_it_is_recorded() -> None:
    async def stream(arguments: dict[str, Any], context: ToolContext) -> AsyncIterator[str]:
        yield "a"

    assert await attempt(FakeTool("stream", stream)) == '["a"]'
    assert await attempt(FakeTool("table", lambda arguments, context: {"n": 1})) == '{"n":1}'


class Order(BaseModel):
    """A value."""

    number: str
    total: Decimal = Decimal("40.5")


def an_order(arguments: dict[str, Any], context: ToolContext) -> Order:
    return Order(**arguments)


@pytest.mark.parametrize(
    "result",
    [Order(number="7"), {"number": "7", "total": "40.5"}, [Order(number="7")], an_order, [an_order]],
    ids=["a model", "a dict", "one for each attempt", "a function", "functions"],
)
async def test_a_fake_tool_can_return_a_value(result: Any) -> None:
    assert await attempt(FakeTool("get_order", result), number="7") == '{"number":"7","total":"40.5"}'


@pytest.mark.parametrize("schema", [Order, {"type": "object", "required": ["number"]}])
def test_a_new_fake_tool_can_have_an_output_schema(schema: Any) -> None:
    spec = FakeTool("get_order", Order(number="7"), output_schema=schema).spec
    assert (spec.value_schema or {})["required"][0] == "number"
    with pytest.raises(ValueError, match="output_schema: "):
        FakeTool("get_order", output_schema={"type": "strin"})


def test_an_answer_can_be_a_value() -> None:
    assert answers(Order(number="7")).text == '{"number":"7","total":"40.5"}'
    assert answers([1]).text == "[1]"


def test_builders_report_invalid_input() -> None:
    assert agent_input("x", config={"max_iterations": 3}).task == "x"
    assert orga_config('[models]\ndefault = "openai:a"').models.default == "openai:a"
    with pytest.raises(InvalidInput, match="agnet"):
        agent_input("x", agnet="clerk")
    with pytest.raises(ConfigError, match=r"orga_config: .*modles"):
        orga_config("[modles]")
    with pytest.raises(ConfigError, match="no TOML"):
        orga_config("[models")


def test_policies_are_written_to_the_folder_of_the_worker(tmp_path: Path) -> None:
    folder = policy_folder(tmp_path, permits("look"), forbids("pay", rule="poor"))
    (file,) = folder.glob("*.cedar")
    assert 'resource.name == "look"' in file.read_text()
    assert '@id("poor") forbid' in file.read_text()
