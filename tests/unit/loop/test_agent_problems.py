"""Mistakes between agents, delegates and tools are found when a worker starts or is checked."""

import os
from typing import Any

import pytest

from orga.activities.adapters.agents.agent_problems import agent_problems
from orga.activities.adapters.agents.agents import ConfiguredAgents, with_default_agent
from orga.client.config.sections import OrgaConfig
from orga.client.workers.checked import worker_report
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.tool_calls.recovery import Recovery
from tests.support.values.core import a_setup, a_spec

TOOLS = {name: a_spec(name) for name in ("list_files", "read_file", "search_text")}


def problems(lead: dict[str, Any], **tools: Any) -> list[tuple[str, str, str]]:
    agents = {"lead": AgentConfig.model_validate(lead), "helper": AgentConfig(tools=("read_file",))}
    found = agent_problems(with_default_agent(agents), {**TOOLS, **tools})
    return [(each.place, each.problem, each.remedy) for each in found]


@pytest.mark.parametrize(
    ("lead", "expected"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"delegates": ["helper", {"agent": "default", "tools": ["read_file"]}]}, [], id="two delegates"),
        pytest.param({"tools": ["terminate", "delegate"], "delegates": ["helper"]}, [], id="the loop's own tools"),
        pytest.param(
            {"delegates": ["helper", "helpr"]},
            [
                (
                    "agents.lead.delegates.1",
                    "no such agent: helpr",
                    "did you mean 'helper'? there are: default, helper, lead",
                )
            ],
            id="an unknown delegate",
        ),
        pytest.param(
            {"delegates": ["lead"]},
            [("agents.lead.delegates.0", "an agent cannot delegate to itself", "leave it out")],
            id="itself",
        ),
        pytest.param(
            {"delegates": [{"agent": "helper", "tools": ["read_file", "write_file"]}]},
            [
                (
                    "agents.lead.delegates.0.tools",
                    "agent helper does not list the tool write_file",
                    "did you mean 'read_file'? there are: read_file",
                )
            ],
            id="a tool that the delegate doesn't have",
        ),
        pytest.param(
            {"tools": ["delegate"]},
            [("agents.lead.tools", "there is nobody to delegate to", "name agents in agents.lead.delegates")],
            id="delegate without delegates",
        ),
        pytest.param(
            {"tools": ["gone"]},
            [("agents.lead.tools", "no such tool: gone", "use list_files, read_file, search_text")],
            id="a tool",
        ),
        pytest.param(
            {"tools": ["read_fil"]},
            [
                (
                    "agents.lead.tools",
                    "no such tool: read_fil",
                    "did you mean 'read_file'? use list_files, read_file, search_text",
                )
            ],
            id="a misspelled tool",
        ),
        pytest.param(
            {"config": {"recovery": {"strategy": "fallback", "alternatives": ["x"]}}},
            [
                (
                    "agents.lead.config.recovery.alternatives.0",
                    "no such tool: x",
                    "there are: list_files, read_file, search_text",
                )
            ],
            id="an alternative",
        ),
    ],
)
def test_problems_are_reported_with_place_and_remedy(
    lead: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    assert problems(lead) == expected


def test_options_of_tools_are_checked_too() -> None:
    recovery = Recovery(strategy="fallback", alternatives=("gone",))
    ((place, problem, _),) = problems({}, fetch=a_spec("fetch", recovery=recovery))
    assert (place, problem) == ("tools.options.fetch.recovery.alternatives.0", "no such tool: gone")


def test_without_the_worker_s_tools_only_delegates_are_checked() -> None:
    agents = with_default_agent({"lead": AgentConfig.model_validate({"tools": ["gone"], "delegates": ["nobody"]})})
    assert [found.place for found in agent_problems(agents, None)] == ["agents.lead.delegates.0"]


def test_a_worker_with_an_unknown_delegate_does_not_start() -> None:
    agents = {"lead": AgentConfig.model_validate({"delegates": ["nobody"]})}
    with pytest.raises(
        ValueError, match=r"agents\.lead\.delegates\.0: no such agent: nobody; there are: default, lead"
    ):
        ConfiguredAgents(agents, TOOLS, "offline:extractive", lambda model: None, a_setup())


def test_the_check_of_a_worker_reports_unknown_delegates(tmp_path: Any) -> None:
    config = OrgaConfig.model_validate({"agents": {"lead": {"delegates": ["nobody"]}}})
    report = worker_report(config, tmp_path, os.environ)
    assert report["problems"] == [
        {"place": "agents.lead.delegates.0", "problem": "no such agent: nobody", "remedy": "there are: default, lead"}
    ]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        pytest.param("permit (principal, action, resource);", "cedar: the policies of ", id="whole"),
        pytest.param("permit (principal action, resource);", "", id="broken"),
    ],
)
def test_unreadable_policies_are_reported_only_as_a_problem(tmp_path: Any, rule: str, expected: str) -> None:
    (tmp_path / "all.cedar").write_text(rule)
    config = OrgaConfig.model_validate({"policy": {"dir": str(tmp_path)}})
    report = worker_report(config, tmp_path, os.environ)
    assert report["policy"] == (f"{expected}{tmp_path}" if expected else "")
    assert len(report["problems"]) == (0 if expected else 1)
