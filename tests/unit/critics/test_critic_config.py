"""The configuration of critics: what is refused, with which message."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orga.activities.adapters.agents.agent_problems import agent_problems, model_refusal
from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.agents.tiers import ChosenModels
from orga.client.config.file import load_config
from orga.client.config.sections import OrgaConfig
from orga.client.errors import OrgaError
from orga.client.workers.checked import worker_report
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.critics import Critic, verdict_schema
from orga.workflows.types.record import validation_problems
from tests.support.runs.critics import RUBRIC, a_critic, a_person
from tests.support.values.core import a_setup, a_spec
from tests.support.values.strategies import LAW


def refusal(**fields: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        Critic.model_validate({"name": "quality", "rubric": RUBRIC, **fields}, extra="forbid")
    return "; ".join(validation_problems(caught.value))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"rubric": {}}, "input: give a rubric for a model, or a person, or both", id="nobody reviews"),
        pytest.param(
            {"rubric": {"a": {"weight": 0.5}, "b": {"weight": 0.45}}},
            "input: the weights of the rubric sum to 0.95, not to 1",
            id="weights that do not sum to 1",
        ),
        pytest.param({"threshold": 1.1}, "threshold: Input should be less than or equal to 1", id="threshold above 1"),
        pytest.param({"threshold": -0.1}, "threshold: Input should be greater than or equal to 0", id="below 0"),
        pytest.param(
            {"on_exhausted": "ask"},
            'input: on_exhausted = "ask" needs a rubric for the model, and a person',
            id="nobody to ask",
        ),
        pytest.param({"tool": ["pay"]}, "tool: unknown key", id="a misspelled key"),
        pytest.param({"person": {"approver": ["ada"]}}, "person.approver: unknown key", id="a misspelled nested key"),
        pytest.param(
            {"rubric": {"a": {"weight": 0}}}, "rubric.a.weight: Input should be greater than 0", id="no weight at all"
        ),
    ],
)
def test_an_invalid_critic_is_refused(fields: dict[str, Any], expected: str) -> None:
    assert refusal(**fields) == expected


@pytest.mark.parametrize("name", ["", "Quality", "a.b", "1st", "a" * 41])
def test_a_name_must_fit_into_an_activity_id(name: str) -> None:
    assert refusal(name=name).startswith("name: ")


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=20))
@LAW
def test_weights_may_differ_from_one_by_a_hundredth(weights: list[float]) -> None:
    rubric = {f"d{index}": {"weight": weight} for index, weight in enumerate(weights)}
    total = sum(weights)
    if abs(total - 1) <= 0.009:
        assert Critic.model_validate({"name": "q", "rubric": rubric}).threshold == 0.7
    elif abs(total - 1) > 0.011:
        with pytest.raises(ValidationError):
            Critic.model_validate({"name": "q", "rubric": rubric})


@pytest.mark.parametrize("weights", [(0.5, 0.49), (0.5, 0.51), (0.33, 0.33, 0.33)], ids=str)
def test_the_tolerance_is_inclusive(weights: tuple[float, ...]) -> None:
    rubric = {f"d{index}": {"weight": weight} for index, weight in enumerate(weights)}
    assert len(Critic.model_validate({"name": "q", "rubric": rubric}).rubric) == len(weights)


def test_two_critics_of_an_agent_cannot_share_a_name() -> None:
    with pytest.raises(ValidationError, match="two critics have the same name; rename one"):
        AgentConfig(critics=(a_critic(), a_person("quality")))


def test_the_schema_requires_each_dimension_and_nothing_else() -> None:
    schema = verdict_schema(a_critic())
    scores = schema["properties"]["scores"]
    assert (list(scores["properties"]), scores["required"]) == (["accuracy", "tone"], ["accuracy", "tone"])
    assert (schema["additionalProperties"], scores["additionalProperties"]) == (False, False)


def test_a_file_error_names_its_place(tmp_path: Path) -> None:
    file = tmp_path / "orga.toml"
    file.write_text('[[agents.writer.critics]]\nname = "quality"\nthreshold = 2\n')
    with pytest.raises(OrgaError, match=r"agents\.writer\.critics"):
        load_config(file)


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        pytest.param({"tools": ("pay",)}, [], id="a tool that is listed"),
        pytest.param({"tools": ("p*",)}, [], id="a tool that a listed glob may match"),
        pytest.param({"tools": ("pay",), "critics": (a_critic(tools=("p*",)),)}, [], id="a glob"),
        pytest.param(
            {"tools": ("spend",)},
            [
                (
                    "agents.a.critics.quality.tools",
                    "the agent does not list the tool pay",
                    "there are: spend",
                )
            ],
            id="a tool that the agent does not have",
        ),
    ],
)
def test_a_critic_of_an_unlisted_tool_is_a_problem(agent: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    """A misspelled name would leave the intended calls unreviewed."""
    config = AgentConfig.model_validate({"critics": (a_critic(tools=("pay",)),), **agent})
    tools = {name: a_spec(name) for name in ("pay", "spend")}
    found = [(each.place, each.problem, each.remedy) for each in agent_problems({"a": config}, tools)]
    assert found == expected


def test_no_worker_starts_with_a_critic_of_an_unlisted_tool() -> None:
    with pytest.raises(ValueError, match="does not list the tool pay"):
        ConfiguredAgents(
            {"a": AgentConfig(critics=(a_critic(tools=("pay",)),))}, {}, "m:m", lambda model: None, a_setup()
        )


def test_the_doctor_finds_a_model_that_cannot_review(tmp_path: Path) -> None:
    config = OrgaConfig(agents={"a": AgentConfig(model="offline:extractive", critics=(a_critic(),))})
    found = [each for each in worker_report(config, tmp_path, os.environ)["problems"] if each["place"] == "agents.a"]
    assert [each["problem"] for each in found] == [
        "critics.quality.model: offline:extractive can quote but not judge; choose another model"
    ]


def _only_ours(model: str) -> None:
    if model != "ours:model":
        raise ValueError(f"no key for {model}")


@pytest.mark.parametrize(
    ("critic", "expected"),
    [
        pytest.param(a_critic(), "", id="the run's own model"),
        pytest.param(a_critic(model="other:m"), "critics.quality.model: no key for other:m", id="one without a key"),
        pytest.param(
            a_critic(model="offline:extractive"),
            "critics.quality.model: offline:extractive can quote but not judge; choose another model",
            id="the offline reader",
        ),
        pytest.param(a_person(model="other:m"), "", id="a person needs no model"),
    ],
)
def test_a_model_that_cannot_review_is_refused(critic: Critic, expected: str) -> None:
    chosen = ChosenModels(("ours:model",), AgentConfig(critics=(critic,)).askers)
    assert model_refusal(chosen, _only_ours) == expected
