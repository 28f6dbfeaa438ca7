"""The input of a run is validated once, and every refusal names its key."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from orga.client.history.values import data_converter
from orga.workflows.types.goals.goal_input import GoalInput
from orga.workflows.types.input import (
    MAX_REST_BYTES,
    MAX_SCHEMA_BYTES,
    MAX_TASK_BYTES,
    MAX_TRUSTED_BYTES,
    AgentInput,
    LoopConfig,
    parse_input,
)
from orga.workflows.types.record import CheckedInput, InvalidInput
from orga.workflows.types.sessions.session_input import SessionInput

CONTRACT = json.loads("""
{"task": "...", "agent": "default", "model": null, "instructions": null, "tools": null,
 "config": {"max_iterations": 25, "max_total_tokens": 100000, "timeout_s": 300, "tool_timeout_s": 30,
            "max_concurrent_tools": 5, "context_token_budget": 32000, "temperature": null, "max_output_tokens": 16384,
            "max_delegation_depth": 3, "max_cost_usd": null, "context_strategy": "sliding_window",
            "recovery": {"strategy": "retry", "max_attempts": 2, "base_delay_ms": 500},
            "tool_profile": null, "step_iteration": null, "pre_hydration": null, "knowledge": null},
 "trusted_context": {}, "output_schema": null, "tenant": null}
""")


def test_the_example_of_the_contract_is_the_default_of_every_key() -> None:
    assert parse_input(CONTRACT) == AgentInput(task="...")
    assert AgentInput(task="...").model_dump().keys() >= CONTRACT.keys()
    defaults, contract = LoopConfig().model_dump(), CONTRACT["config"]
    recovery = contract.pop("recovery")
    assert defaults.items() >= contract.items()
    assert defaults["recovery"].items() >= recovery.items()


MISSPELT: dict[str, tuple[Callable[..., object], dict[str, Any], str]] = {
    "a setting": (LoopConfig, {"max_iteration": 1}, "max_iteration: unknown key (did you mean 'max_iterations'?)"),
    "a key of an agent's input": (
        AgentInput,
        {"task": "t", "modell": "m"},
        "modell: unknown key (did you mean 'model'?)",
    ),
    "a setting in it": (
        AgentInput,
        {"task": "t", "config": {"max_iteration": 1}},
        "config.max_iteration: unknown key (did you mean 'max_iterations'?)",
    ),
    "a setting of a goal": (
        GoalInput,
        {"goal": "g", "config": {"recovery": {"strateg": "retry"}}},
        "config.recovery.strateg: unknown key (did you mean 'strategy'?)",
    ),
    "a setting of a session": (
        SessionInput,
        {"config": {"timeout": 1}},
        "config.timeout: unknown key (did you mean 'timeout_s'?)",
    ),
    "a key without a near match": (LoopConfig, {"zzz": 1}, "zzz: unknown key"),
}


@pytest.mark.parametrize(("kind", "given", "expected"), MISSPELT.values(), ids=MISSPELT)
def test_a_misspelt_key_is_refused_at_its_place(
    kind: Callable[..., object], given: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        kind(**given)
    assert str(refused.value) == expected


@pytest.mark.parametrize("kind", [LoopConfig, AgentInput, GoalInput, SessionInput])
def test_an_unknown_key_in_a_recorded_history_is_ignored(kind: type[CheckedInput]) -> None:
    recorded = {"task": "t", "goal": "g", "of_tomorrow": 1, "max_iterations": 3, "config": {"of_tomorrow": 1}}
    (payload,) = data_converter.payload_converter.to_payloads([recorded])
    (read,) = data_converter.payload_converter.from_payloads([payload], [kind])
    assert not hasattr(read, "of_tomorrow")
    assert kind.model_validate(recorded) == read


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"task": "t"}, id="only a task"),
        pytest.param({"task": "t", "agent": "coder", "model": "openai:gpt-5", "tenant": "acme"}, id="names"),
        pytest.param({"task": "t", "tools": []}, id="no tools at all"),
        pytest.param({"task": "t", "tools": ["read_file"]}, id="a list of tools"),
        pytest.param({"task": "t", "instructions": ""}, id="instructions that are empty on purpose"),
        pytest.param({"task": "t" * MAX_TASK_BYTES}, id="the longest task"),
        pytest.param({"task": "t", "trusted_context": {"role": {"deep": [1, None]}}}, id="any JSON as trusted context"),
        pytest.param({"task": "t", "config": {"temperature": 0}}, id="temperature 0"),
        pytest.param({"task": "t", "config": {"temperature": None}}, id="the provider's own temperature"),
        pytest.param({"task": "t", "config": {"max_delegation_depth": 0}}, id="no delegation"),
        pytest.param({"task": "t", "config": {"max_cost_usd": 0.01}}, id="a cost limit"),
        pytest.param({"task": "t", "config": {"recovery": {"max_attempts": 1}}}, id="a part of recovery"),
        pytest.param({"task": "t", "config": {"tool_profile": {"include": ["read_*"]}}}, id="a tool profile"),
        pytest.param({"task": "t", "output_schema": {"type": "object"}}, id="an output schema"),
        pytest.param({"task": "t", "config": {}}, id="an empty config"),
        pytest.param({"task": " né\n😀 "}, id="any text that is not blank"),
    ],
)
def test_valid_input_is_accepted_unchanged(given: dict[str, Any]) -> None:
    read = parse_input(json.loads(json.dumps(given)))
    assert json.loads(read.model_dump_json(exclude_unset=True)) == given


def with_config(**config: Any) -> dict[str, Any]:
    return {"task": "t", "config": config}


BAD: list[tuple[str, object, str]] = [
    ("null instead of an object", None, "input: "),
    ("text instead of an object", "count the files", "input: "),
    ("a list instead of an object", [{"task": "t"}], "input: "),
    ("a tuple instead of an object", ("task", "t"), "input: "),
    ("a number instead of an object", 5, "input: "),
    ("an empty object", {}, "task: "),
    ("an empty task", {"task": ""}, "task: must not be empty"),
    ("a blank task", {"task": " \n"}, "task: must not be empty"),
    ("a task of null", {"task": None}, "task: "),
    ("a task that is a number", {"task": 5}, "task: "),
    ("a task that is an object", {"task": {"text": "t"}}, "task: "),
    ("a task that is too long", {"task": "t" * (MAX_TASK_BYTES + 1)}, "task: "),
    ("half a character", {"task": "\ud800"}, "task: "),
    ("an unknown key", {"task": "t", "modle": "x"}, "modle: unknown key"),
    ("an unknown key of the config", with_config(max_iteration=3), "config.max_iteration: unknown key"),
    ("an unknown key of recovery", with_config(recovery={"tries": 3}), "config.recovery.tries: unknown key"),
    ("an empty agent", {"task": "t", "agent": ""}, "agent: "),
    ("an agent of null", {"task": "t", "agent": None}, "agent: "),
    ("an agent that is too long", {"task": "t", "agent": "a" * 201}, "agent: "),
    ("an empty model", {"task": "t", "model": ""}, "model: "),
    ("instructions that are a list", {"task": "t", "instructions": ["a"]}, "instructions: "),
    ("instructions that are too long", {"task": "t", "instructions": "i" * (MAX_TASK_BYTES + 1)}, "instructions: "),
    ("tools as one text", {"task": "t", "tools": "read_file"}, "tools: "),
    ("tools as an object", {"task": "t", "tools": {"read_file": True}}, "tools: "),
    ("a tool that is a number", {"task": "t", "tools": ["read_file", 1]}, "tools.1: "),
    ("an empty tool name", {"task": "t", "tools": [""]}, "tools.0: "),
    ("trusted context as a list", {"task": "t", "trusted_context": ["a"]}, "trusted_context: "),
    ("trusted context of null", {"task": "t", "trusted_context": None}, "trusted_context: "),
    ("an empty tenant", {"task": "t", "tenant": ""}, "tenant: "),
    ("an output schema as text", {"task": "t", "output_schema": "string"}, "output_schema: must be a JSON Schema"),
    (
        "an output schema of too many bytes",
        {"task": "t", "output_schema": {"description": "x" * MAX_SCHEMA_BYTES}},
        f"output_schema: must not be larger than {MAX_SCHEMA_BYTES} bytes of JSON",
    ),
    ("a config of null", {"task": "t", "config": None}, "config: "),
    ("a config that is a list", {"task": "t", "config": []}, "config: "),
    ("no iterations", with_config(max_iterations=0), "config.max_iterations: "),
    ("fewer than no iterations", with_config(max_iterations=-1), "config.max_iterations: "),
    ("a part of an iteration", with_config(max_iterations=1.5), "config.max_iterations: "),
    ("iterations in words", with_config(max_iterations="many"), "config.max_iterations: "),
    ("iterations of null", with_config(max_iterations=None), "config.max_iterations: "),
    ("no tokens", with_config(max_total_tokens=0), "config.max_total_tokens: "),
    ("no time", with_config(timeout_s=0), "config.timeout_s: "),
    ("time that is no number", with_config(timeout_s=float("nan")), "config.timeout_s: "),
    ("endless time", with_config(timeout_s=float("inf")), "config.timeout_s: "),
    ("more than a year", with_config(timeout_s=31_536_001), "config.timeout_s: "),
    ("no time for a tool", with_config(tool_timeout_s=-0.1), "config.tool_timeout_s: "),
    ("no tool at a time", with_config(max_concurrent_tools=0), "config.max_concurrent_tools: "),
    ("too many tools at a time", with_config(max_concurrent_tools=101), "config.max_concurrent_tools: "),
    ("a context that is too small", with_config(context_token_budget=499), "config.context_token_budget: "),
    ("a negative temperature", with_config(temperature=-0.1), "config.temperature: "),
    ("too much temperature", with_config(temperature=2.1), "config.temperature: "),
    ("a temperature that is no number", with_config(temperature=float("nan")), "config.temperature: "),
    ("no output", with_config(max_output_tokens=0), "config.max_output_tokens: "),
    ("negative depth", with_config(max_delegation_depth=-1), "config.max_delegation_depth: "),
    ("no money", with_config(max_cost_usd=0), "config.max_cost_usd: "),
    ("endless money", with_config(max_cost_usd=float("inf")), "config.max_cost_usd: "),
    ("another strategy", with_config(context_strategy="magic"), "config.context_strategy: "),
    ("another recovery", with_config(recovery={"strategy": "pray"}), "config.recovery.strategy: "),
    ("recovery without an attempt", with_config(recovery={"max_attempts": 0}), "config.recovery.max_attempts: "),
    ("recovery as text", with_config(recovery="retry"), "config.recovery: "),
    ("a tool profile as text", with_config(tool_profile="all"), "config.tool_profile: "),
    (
        "an unknown key of a tool profile",
        with_config(tool_profile={"only": []}),
        "config.tool_profile.only: unknown key",
    ),
    ("fewer than no tools", with_config(tool_profile={"max_tools": -1}), "config.tool_profile.max_tools: "),
]


@pytest.mark.parametrize(("raw", "refusal"), [pytest.param(raw, refusal, id=name) for name, raw, refusal in BAD])
def test_invalid_input_is_refused_with_its_key(raw: object, refusal: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_input(raw)
    assert str(caught.value).startswith(refusal)
    assert len(str(caught.value)) < 500


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_input({"task": "", "x": 1, "config": {"max_iterations": 0, "y": 2}})
    places = [problem.partition(":")[0] for problem in caught.value.problems]
    assert sorted(places) == ["config.max_iterations", "config.y", "task", "x"]


def test_checked_input_is_accepted_again() -> None:
    checked = AgentInput(task="t")
    assert parse_input(checked) == checked


@pytest.mark.parametrize(
    ("key", "value", "size", "limit"),
    [
        pytest.param(
            "task", '"' * 100_001, 200_002, MAX_TASK_BYTES, id="a task of quotes, which JSON writes in two bytes"
        ),
        pytest.param("instructions", "\x01" * 40_000, 240_000, MAX_TASK_BYTES, id="instructions of control characters"),
        pytest.param("trusted_context", {"k": "é" * 50_000}, 100_008, MAX_TRUSTED_BYTES, id="facts of two bytes each"),
        pytest.param("output_schema", {"description": "\n" * 30_000}, 60_018, MAX_SCHEMA_BYTES, id="a schema of lines"),
        pytest.param("tools", ["n" * 200] * 300, None, MAX_REST_BYTES, id="all the rest together"),
    ],
)
def test_an_input_that_is_too_large_is_refused_with_size_limit_and_remedy(
    key: str, value: object, size: int | None, limit: int
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_input({"task": "t"} | {key: value})
    message = str(caught.value)
    assert message.startswith(f"{key}: " if size else f"input: the lists of {key} ")
    assert f" {size}; " in message if size else " with the other settings, " in message
    assert f"{limit}" in message
    assert message.rpartition("; ")[2].split()[0] in {"put", "give", "shorten"}
