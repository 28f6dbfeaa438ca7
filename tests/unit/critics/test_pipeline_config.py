"""`[pipelines]`: the settings of each kind, invalid combinations, and the agents that must exist."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orga.client.config.file import load_config
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.risks import risks
from orga.client.errors import ConfigError
from orga.client.workers.checked import worker_report
from orga.client.workers.parts import configured_parts
from orga.workflows.types.goals.goal_input import MAX_PIPELINE_GOAL_BYTES, parse_goal
from orga.workflows.types.goals.pipelines import MAX_CHAIN, MAX_INPUTS, MAX_RUBRIC_CHARS, AdaptiveBreak, Pipeline
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.setup import PrepareRequest, Setup

CHAIN: dict[str, Any] = {"kind": "chain", "steps": ["finder", {"agent": "writer", "task": "Write it up."}]}
SURVEY: dict[str, Any] = {"kind": "map_reduce", "map": "finder", "reduce": "writer"}
RUBRIC = {"clear": {"weight": 0.5}, "true": {"weight": 0.5}}
ESSAY: dict[str, Any] = {"kind": "director_critic", "director": "writer", "critic": "finder", "rubric": RUBRIC}
AGENTS: dict[str, Any] = {"finder": {}, "writer": {}}


def a_config(agents: dict[str, Any] = AGENTS, **pipelines: dict[str, Any]) -> OrgaConfig:
    return OrgaConfig.model_validate({"agents": agents, "pipelines": pipelines}, extra="forbid")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        pytest.param({"kind": "debate"}, "Input should be 'chain', 'map_reduce' or 'director_critic'", id="no kind"),
        pytest.param({"kind": "chain"}, 'kind "chain" needs steps', id="a chain of nothing"),
        pytest.param({"kind": "chain", "steps": []}, 'kind "chain" needs steps', id="an empty chain"),
        pytest.param({"kind": "chain", "steps": ["a"] * (MAX_CHAIN + 1)}, "at most 15", id="too long a chain"),
        pytest.param({"kind": "chain", "steps": [{"task": "x"}]}, "agent", id="nobody does a step"),
        pytest.param({"kind": "chain", "steps": [{"agent": "a", "model": "x"}]}, "Extra inputs", id="an unknown key"),
        pytest.param({**CHAIN, "map": "a"}, 'map: not of kind "chain"; it has steps, evaluate', id="of another kind"),
        pytest.param({**CHAIN, "attempts": 0}, "greater than or equal to 1", id="no attempt"),
        pytest.param({**CHAIN, "attempts": True}, "must be a number", id="a boolean for a number"),
        pytest.param({"kind": "map_reduce", "map": "a"}, 'kind "map_reduce" needs reduce', id="nobody reduces"),
        pytest.param({**SURVEY, "inputs": ["x"] * 21}, "inputs: there are 21, and max_inputs is 20", id="many inputs"),
        pytest.param({**SURVEY, "max_inputs": MAX_INPUTS + 1}, "less than or equal to 30", id="more than there may be"),
        pytest.param({**SURVEY, "inputs": [""]}, "at least 1 character", id="an empty input"),
        pytest.param({**ESSAY, "critic": None}, 'kind "director_critic" needs critic', id="nobody reviews"),
        pytest.param({**ESSAY, "rubric": {}}, 'kind "director_critic" needs rubric', id="no rubric"),
        pytest.param({**ESSAY, "rubric": {"a": {"weight": 0.6}}}, "the weights sum to 0.6, not to 1", id="weights"),
        pytest.param(
            {**ESSAY, "rubric": {n: {"weight": 0.2, "description": "x" * 1_601} for n in "abcde"}},
            f"the descriptions have 8005 characters, over the limit of {MAX_RUBRIC_CHARS}",
            id="a very long rubric",
        ),
        pytest.param({**ESSAY, "threshold": 1.01}, "less than or equal to 1", id="an unreachable threshold"),
        pytest.param({**ESSAY, "max_rounds": 8}, "less than or equal to 7", id="too many rounds"),
        pytest.param({**ESSAY, "max_rounds": 0}, "greater than or equal to 1", id="no round"),
        pytest.param(
            {**ESSAY, "max_rounds": 3, "fixed_rounds": 3}, "leave out fixed_rounds or max_rounds", id="both rounds"
        ),
        pytest.param(
            {**ESSAY, "threshold": 0.9, "fixed_rounds": 3}, "leave out fixed_rounds or threshold", id="fixed, a score"
        ),
        pytest.param(
            {**ESSAY, "adaptive_break": True, "fixed_rounds": 3}, "fixed_rounds or adaptive_break", id="fixed, a break"
        ),
        pytest.param(
            {**ESSAY, "adaptive_break": {"min_rounds": 5}, "max_rounds": 4},
            "adaptive_break.min_rounds is more than max_rounds, which is 4",
            id="a break that comes too late",
        ),
        pytest.param(
            {**ESSAY, "adaptive_break": {"min_rounds": 1}}, "greater than or equal to 2", id="a break at once"
        ),
        pytest.param({**ESSAY, "evaluate": True}, 'evaluate: not of kind "director_critic"', id="two judges"),
    ],
)
def test_an_invalid_pipeline_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        a_config(line=wrong)
    assert says in str(refused.value)


@pytest.mark.parametrize("name", ["", "Line", "a b", "x" * 41])
def test_names_are_lower_case_words(name: str) -> None:
    with pytest.raises(ValidationError):
        a_config(**{name: CHAIN})


def test_a_problem_is_reported_with_file_line_and_key(tmp_path: Path) -> None:
    (tmp_path / "orga.toml").write_text('[pipelines.line]\nkind = "chain"\nsteps = ["a"]\nmax_round = 2\n')
    with pytest.raises(ConfigError) as refused:
        load_config(folder=tmp_path, env={})
    assert "orga.toml:4: pipelines.line.max_round" in str(refused.value)


def test_a_break_is_a_boolean_or_a_table() -> None:
    assert Pipeline.model_validate({**ESSAY, "adaptive_break": True}).adaptive_break == AdaptiveBreak()
    assert Pipeline.model_validate({**ESSAY, "adaptive_break": False, "fixed_rounds": 2}).adaptive_break is None
    assert Pipeline.model_validate(ESSAY).rounds == 3


def test_a_pipeline_with_an_unknown_agent_is_reported_and_starts_no_worker(tmp_path: Path) -> None:
    config = a_config(line={**CHAIN, "steps": ["finder", "writter"]})
    [problem] = worker_report(config, tmp_path, {})["problems"]
    assert (problem["place"], problem["problem"]) == ("pipelines.line.steps.1", "no such agent: writter")
    assert "writer" in problem["remedy"]
    with pytest.raises(ValueError, match=r"pipelines\.line\.steps\.1: no such agent: writter"):
        configured_parts(config, {}, tmp_path, knows_attributes=False)


def test_a_pipeline_needs_no_trust(tmp_path: Path) -> None:
    """It lets agents delegate to agents, as `delegates` does, without adding tools."""
    assert risks({"pipelines": {"line": CHAIN, "essay": ESSAY}}, tmp_path) == []


async def a_setup(folder: Path, request: PrepareRequest, **pipelines: dict[str, Any]) -> Setup:
    parts = configured_parts(a_config(**pipelines), {}, folder, knows_attributes=False)
    return await parts.agents.setup(request, is_goal=True)


async def test_a_goal_records_its_pipeline_and_can_delegate_to_its_agents(tmp_path: Path) -> None:
    setup = await a_setup(tmp_path, PrepareRequest(pipeline="line"), line=CHAIN)
    assert setup.pipeline == Pipeline.model_validate(CHAIN)
    assert [each.agent for each in setup.delegates] == ["finder", "writer"]
    assert setup.tool("delegate") is not None
    assert Setup.model_validate_json(setup.model_dump_json(exclude_unset=True)) == setup
    plain = await a_setup(tmp_path, PrepareRequest(), line=CHAIN)
    assert ("pipeline" in plain.model_fields_set, plain.delegates) == (False, ())


async def test_an_agent_with_the_name_of_a_tool_is_refused(tmp_path: Path) -> None:
    config = a_config({"read_file": {}}, line={"kind": "chain", "steps": ["read_file"]})
    parts = configured_parts(config, {}, tmp_path, knows_attributes=False)
    with pytest.raises(InvalidInput, match="'read_file' is an agent and a tool"):
        await parts.agents.setup(PrepareRequest(pipeline="line"), is_goal=True)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        pytest.param(PrepareRequest(pipeline="lime"), "there is no pipeline 'lime'", id="unknown"),
        pytest.param(PrepareRequest(pipeline="line", agent="writer"), "the goal's own agent", id="to itself"),
        pytest.param(
            PrepareRequest(pipeline="line", config={"tool_profile": {"exclude": ["delegate"]}}),
            "tool_profile leaves out 'delegate'",
            id="nothing to delegate with",
        ),
    ],
)
async def test_a_goal_with_an_unusable_pipeline_is_refused(tmp_path: Path, request_: PrepareRequest, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        await a_setup(tmp_path, request_, line=CHAIN)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({"inputs": ["a"]}, "inputs need a pipeline", id="inputs alone"),
        pytest.param({"pipeline": "line", "skills": ["read_file"]}, "leave skills out", id="skills"),
        pytest.param({"pipeline": "line", "inputs": []}, "at least 1 item", id="no inputs"),
        pytest.param({"pipeline": "line", "inputs": ["a"] * 31}, "at most 30 items", id="too many inputs"),
        pytest.param({"pipeline": "line", "inputs": ["a" * 1_001]}, "1,000 characters", id="a long input"),
        pytest.param({"pipeline": "Line"}, "pipeline: String should match", id="no name"),
        pytest.param({"pipeline": "line", "goal": "g" * 8_001}, str(MAX_PIPELINE_GOAL_BYTES), id="a long goal"),
    ],
)
def test_input_that_does_not_fit_a_pipeline_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        parse_goal({"goal": "see to it", **given})
