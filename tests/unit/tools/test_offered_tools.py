"""The tools of a run: all sources merged, then limited by profile and ceiling, plus the loop's own tools."""

from typing import Any

import pytest

from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.input import LoopConfig, RunKnowledge
from orga.workflows.types.limits import Ceiling
from orga.workflows.types.recall import KNOWLEDGE_TOOLS
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.setup import PrepareRequest
from orga.workflows.types.tool_calls.delegation import Delegate, DelegateSpec
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolProfile, ToolSpec
from tests.support.values.core import a_setup, a_spec

TOOLS = {
    "read": a_spec("read", verified=True),
    "write": a_spec("write"),
    "run": a_spec("run", recovery=Recovery(strategy="fallback", alternatives=("read", "ran"))),
}
LEAD = AgentConfig(
    tools=("read", "write", "terminate"),
    delegates=(Delegate(agent="writer", tools=("write",)), Delegate(agent="reader"), Delegate(agent="writer")),
)
AGENTS = {
    "lead": LEAD,
    "writer": AgentConfig(tools=("write",), description="Writes it down."),
    "reader": AgentConfig(tools=("read",), config=LoopConfig(tool_profile=ToolProfile(exclude=("*",)))),
    "runner": AgentConfig(tools=("run",)),
    "lonely": AgentConfig(tools=("read", "delegate")),
}
CONFIGURED = ConfiguredAgents(AGENTS, TOOLS, "offline:extractive", lambda model: None, a_setup())


async def offered(**fields: Any) -> list[str]:
    setup = await CONFIGURED.setup(PrepareRequest.model_validate({"agent": "lead", **fields}))
    assert bool(setup.delegates) == any(tool.name == "delegate" for tool in setup.tools)
    return [tool.name for tool in setup.tools]


async def the_tool(name: str, **fields: Any) -> ToolSpec:
    setup = await CONFIGURED.setup(PrepareRequest.model_validate({"agent": "lead", **fields}))
    found = setup.tool(name)
    assert found is not None
    return found


def profile(**fields: Any) -> dict[str, Any]:
    return {"config": {"tool_profile": fields}}


def under(*tools: str) -> dict[str, Any]:
    return {"ceiling": Ceiling(tools=tools)}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, ["read", "write", "terminate", "delegate"], id="the tools of the agent, and delegate"),
        pytest.param({"tools": ("write",)}, ["write"], id="the tools of the run without delegate"),
        pytest.param({"tools": ("delegate", "read")}, ["delegate", "read"], id="the tools of the run with delegate"),
        pytest.param(profile(include=["r*", "d*"]), ["read", "delegate"], id="a profile hides tools"),
        pytest.param(
            profile(require_verified=True), ["read", "terminate", "delegate"], id="tools of the loop are verified"
        ),
        pytest.param(profile(include=["none"]), [], id="a profile that hides everything"),
        pytest.param({"agent": "reader"}, [], id="an agent's own profile"),
        pytest.param(
            {"agent": "reader", "config": {"tool_profile": None}}, ["read"], id="a profile removed by the run"
        ),
        pytest.param({"agent": "reader", **profile(include=["*"])}, [], id="profiles of agent and run are merged"),
        pytest.param(under("write", "run"), ["write"], id="a ceiling narrows and never widens"),
        pytest.param(under("write", "delegate"), ["write", "delegate"], id="a ceiling that includes delegate"),
        pytest.param(under(), [], id="an empty ceiling"),
        pytest.param({"depth": 9}, ["read", "write", "terminate", "delegate"], id="depth does not hide delegate"),
    ],
)
async def test_these_tools_are_offered(fields: dict[str, Any], expected: list[str]) -> None:
    assert await offered(**fields) == expected


async def test_the_model_sees_what_each_delegate_is_for() -> None:
    setup = await CONFIGURED.setup(PrepareRequest(agent="lead"))
    assert setup.delegates == (
        DelegateSpec(agent="writer", description="Writes it down.", tools=("write",)),
        DelegateSpec(agent="reader"),
    )
    description = (await the_tool("delegate")).description
    assert description.endswith("\n- writer: Writes it down.\n- reader")


@pytest.mark.parametrize(
    ("tool", "arguments", "fits"),
    [
        pytest.param("delegate", {"agent": "writer", "task": "write"}, True, id="a delegation"),
        pytest.param(
            "delegate", {"agent": "lead", "task": "write"}, False, id="a delegation to an agent that is not listed"
        ),
        pytest.param("delegate", {"agent": "writer", "task": ""}, False, id="a delegation with an empty task"),
        pytest.param("delegate", {"agent": "writer"}, False, id="a delegation without a task"),
        pytest.param(
            "delegate",
            {"agent": "writer", "task": "x", "tools": ["rm"]},
            False,
            id="a delegation with an extra argument",
        ),
        pytest.param("terminate", {"reason": "done", "output": ""}, True, id="an ending"),
        pytest.param("terminate", {"output": "x"}, False, id="an ending without a reason"),
    ],
)
async def test_arguments_of_loop_tools_are_validated(tool: str, arguments: dict[str, Any], fits: bool) -> None:
    assert (argument_errors((await the_tool(tool)).parameters, arguments) == []) is fits


async def test_loop_tools_have_these_effects() -> None:
    assert (await the_tool("delegate")).effect == "irreversible"
    assert (await the_tool("terminate")).effect == "read_only"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {"agent": "lonely"},
            "tools: agent 'lonely' has nobody to delegate to; name agents in agents.lonely.delegates",
            id="delegate without delegates",
        ),
        pytest.param(
            {"tools": ("delegat",)},
            "tools: agent 'lead' does not list 'delegat'; did you mean 'delegate'? "
            "there are: delegate, read, terminate, write",
            id="a name near delegate",
        ),
        pytest.param(
            {"agent": "runner"},
            "tools.options.run.recovery.alternatives.1: this worker has no tool 'ran'; did you mean 'run'? "
            "there are: read, run, write",
            id="an unknown alternative of a tool",
        ),
        pytest.param(
            {"config": {"recovery": {"strategy": "fallback", "alternatives": ["raed"]}}},
            "config.recovery.alternatives.0: this worker has no tool 'raed'; did you mean 'read'? ",
            id="an alternative for all tools",
        ),
        pytest.param(
            {"config": {"pre_hydration": {"resolution_tools": {"ticket": "tickets", "url": "read"}}}},
            "config.pre_hydration.resolution_tools.ticket: this worker has no tool 'tickets'; there are: ",
            id="a resolution tool",
        ),
    ],
)
async def test_an_unknown_tool_name_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await offered(**fields)
    assert str(caught.value).startswith(message)


KNOWING = ConfiguredAgents(
    {
        "plain": AgentConfig(tools=("read",)),
        "all": AgentConfig(tools=("*",)),
        "asking": AgentConfig(tools=("read", "recall_knowledge")),
        "knowing": AgentConfig(tools=("read",), config=LoopConfig(knowledge=RunKnowledge())),
    },
    {"read": TOOLS["read"], **{name: a_spec(name, verified=True) for name in KNOWLEDGE_TOOLS}},
    "offline:extractive",
    lambda model: None,
    a_setup(),
)

KNOWN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "none without knowledge": ({"agent": "plain"}, ["read"]),
    "a glob does not include them": ({"agent": "all"}, ["read"]),
    "by the config of the run": ({"agent": "plain", "config": {"knowledge": {}}}, ["read", *KNOWLEDGE_TOOLS]),
    "by the config of the agent": ({"agent": "knowing"}, ["read", *KNOWLEDGE_TOOLS]),
    "removed by the run": ({"agent": "knowing", "config": {"knowledge": None}}, ["read"]),
    "switched off": ({"agent": "knowing", "config": {"knowledge": {"enabled": False}}}, ["read"]),
    "narrowed by the run": ({"agent": "knowing", "tools": ["recall_knowledge"]}, ["recall_knowledge"]),
    "narrowed by a profile": (
        {"agent": "knowing", "config": {"tool_profile": {"exclude": ["store_*"]}}},
        ["read", "recall_knowledge"],
    ),
    "under a ceiling": ({"agent": "knowing", "ceiling": Ceiling(tools=("read",))}, ["read"]),
}


@pytest.mark.parametrize(("fields", "expected"), KNOWN.values(), ids=KNOWN)
async def test_knowledge_tools_are_offered_only_to_runs_with_knowledge(
    fields: dict[str, Any], expected: list[str]
) -> None:
    setup = await KNOWING.setup(PrepareRequest.model_validate(fields))
    assert [tool.name for tool in setup.tools] == expected


async def test_listed_knowledge_tools_need_knowledge() -> None:
    with pytest.raises(InvalidInput, match=r"has no knowledge; set agents\.asking\.config\.knowledge"):
        await KNOWING.setup(PrepareRequest(agent="asking"))


async def test_a_worker_without_a_store_refuses_runs_with_knowledge() -> None:
    with pytest.raises(InvalidInput, match="this worker has no store of knowledge"):
        await CONFIGURED.setup(PrepareRequest(agent="lead", config={"knowledge": {}}))
