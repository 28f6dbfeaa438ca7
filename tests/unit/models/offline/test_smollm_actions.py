"""The action protocol and the context window of the small local model."""

from typing import Any

import pytest

from orga.activities.adapters.offline.local_model import (
    ChatLine,
    action_schema,
    arguments_schema,
    fitted_lines,
    parsed_call,
    partial_answer_text,
)
from orga.activities.ports import ToolChoice
from orga.workflows.types.tool_calls.tools import ToolSpec

CITY = {"type": "string", "title": "City", "description": "Where"}
CLOCK = ToolSpec(
    name="get_time",
    parameters={"type": "object", "properties": {"city": CITY, "zone": CITY}, "required": ["city"]},
)


@pytest.mark.parametrize(
    ("tools", "choice", "actions"),
    [
        pytest.param((), "auto", None, id="no tools: plain text"),
        pytest.param((CLOCK,), "none", None, id="calls forbidden: plain text"),
        pytest.param((CLOCK,), "auto", ["answer", "call_tool"], id="answer or call"),
        pytest.param((CLOCK,), "any", ["call_tool"], id="a call is required"),
    ],
)
def test_the_schema_follows_the_tool_choice(
    tools: tuple[ToolSpec, ...], choice: ToolChoice, actions: list[str] | None
) -> None:
    schema = action_schema(tools, choice, answer_limit=100)

    found = schema and [option["properties"]["action"]["const"] for option in schema["anyOf"]]
    assert found == actions


@pytest.mark.parametrize(
    ("parameters", "main", "expected"),
    [
        pytest.param(CLOCK.parameters, None, ["city"], id="optional arguments are left out"),
        pytest.param(CLOCK.parameters, "zone", ["city", "zone"], id="the main argument is kept"),
        pytest.param({"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}}, None, [], id="references"),
        pytest.param({}, None, [], id="no schema"),
    ],
)
def test_only_simple_required_and_main_arguments_are_offered(
    parameters: dict[str, Any], main: str | None, expected: list[str]
) -> None:
    spec = ToolSpec(name="t", parameters=parameters, main_argument=main)

    assert list(arguments_schema(spec).get("properties", {})) == expected


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        pytest.param("", "", id="nothing yet"),
        pytest.param('{"action": "answ', "", id="action not closed"),
        pytest.param('{"action": "answer", "text": "Hel', "Hel", id="text still open"),
        pytest.param('{"action": "answer", "text": "a\\u00', "a", id="escape still open"),
        pytest.param("[1]", "", id="not an object"),
    ],
)
def test_text_is_shown_before_the_action_is_complete(raw: str, text: str) -> None:
    assert partial_answer_text(raw) == text


def test_a_call_cut_by_the_output_limit_is_malformed() -> None:
    raw = '{"action": "call_tool", "tool": "get_time", "arguments": {"city": "Par'

    call = parsed_call(raw, "c1", complete=False)

    assert call is not None
    assert (call.name, call.arguments, call.malformed) == ("get_time", {}, raw)


def test_the_oldest_tool_result_is_cut_first_with_a_mark() -> None:
    lines = (
        ChatLine("system", "rules"),
        ChatLine("user", "task"),
        ChatLine("user", "a" * 5000, is_tool_result=True),
        ChatLine("user", "b" * 1000, is_tool_result=True),
    )

    fitted = fitted_lines(lines, budget=2000)

    assert sum(len(line.content) for line in fitted) <= 2000
    assert fitted[2].content.endswith("[cut to fit the model's window: 5000 characters in all]")
    assert (fitted[0], fitted[1], fitted[3]) == (lines[0], lines[1], lines[3])


def test_the_task_is_kept_while_a_tool_result_can_be_cut() -> None:
    lines = (ChatLine("user", "t" * 4000), ChatLine("user", "r" * 4000, is_tool_result=True))

    fitted = fitted_lines(lines, budget=1000)

    assert [len(line.content) for line in fitted] == [1000 - len(fitted[1].content), len(fitted[1].content)]
    assert fitted[1].content.startswith("r" * 120 + "\n[cut")


def test_a_very_long_conversation_keeps_its_task_and_its_end() -> None:
    lines = (
        ChatLine("system", "rules"),
        ChatLine("user", "task"),
        *(ChatLine("assistant", str(i)) for i in range(200)),
    )

    fitted = fitted_lines(lines, budget=10_000)

    assert [line.content for line in fitted[:2]] == ["rules", "task"]
    assert (fitted[2].content, fitted[-1].content) == ("176", "199")


@pytest.mark.parametrize(
    "raw",
    [
        '{"action": "call_tool", "tool": "get_time", "arguments": {"city": "Paris", "city": "Rome"}}',
        '{"action": "call_tool", "tool": "get_time", "arguments": {"city": "Paris"}, "arguments": {}}',
    ],
)
def test_a_call_with_a_duplicate_key_is_malformed(raw: str) -> None:
    call = parsed_call(raw, "c1", complete=True)

    assert call is not None
    assert (call.arguments, call.malformed) == ({}, raw)
