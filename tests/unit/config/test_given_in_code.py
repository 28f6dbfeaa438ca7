"""Agents, tools and policies in code count like those of a file, and invalid ones are refused."""

import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from orga import (
    Agent,
    AgentInput,
    DeferredTool,
    LoopConfig,
    OrgaPlugin,
    create_schedule,
    start_agent,
    start_goal,
    start_session,
    tool,
)
from orga.activities.adapters.models.registry import ModelRegistry
from orga.client.config.known_input import refuse_in_process
from orga.client.config.sections import McpConfig, OrgaConfig, PolicyConfig
from orga.client.config.trust.rules_in_use import rules_in_use
from orga.client.config.workplace import set_client_home
from orga.client.errors import ConfigError
from orga.client.runs.agents import check_by_local_worker, register_check
from orga.client.workers.in_code import InCodeParts, as_tool
from orga.client.workers.parts import configured_parts
from orga.workflow import run_agent
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.input import LoopSettings
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.sessions.session_input import SessionInput
from orga.workflows.types.setup import PrepareRequest
from orga.workflows.types.tool_calls.mcp import McpServer

EMPTY = OrgaConfig()


@tool(effect="read_only")
def stock(item: str) -> int:
    """The number of them."""
    return len(item)


@activity.defn(name="price")
async def price_of(item: str) -> float:
    """Return the price of an item."""
    return float(len(item))


class Till:
    """An object whose methods are activities."""

    @activity.defn
    async def charge(self, cents: int) -> str:
        """Take money."""
        return f"{cents}"


def untyped(item) -> str:  # type: ignore[no-untyped-def]  # pyright: ignore
    return str(item)  # pyright: ignore


def a_clerk(**given: Any) -> Agent:
    return Agent("clerk", **given)


async def test_an_agent_in_code_is_prepared_like_one_of_a_file(tmp_path: Path) -> None:
    till = Till()
    agent = Agent(
        "clerk", instructions="Help.", tools=["read_file", stock, price_of, till.charge], config={"max_iterations": 3}
    )
    in_code = InCodeParts([agent], tools=[stock])
    parts = configured_parts(
        in_code.merged_with(EMPTY), {}, tmp_path, knows_attributes=False, in_code=in_code.functions()
    )
    setup = await parts.agents.setup(PrepareRequest(agent="clerk"))
    assert [each.name for each in setup.tools] == ["read_file", "stock", "price", "charge"]
    assert [each.effect for each in setup.tools] == ["read_only", "read_only", "irreversible", "irreversible"]
    assert (setup.instructions, setup.config.max_iterations) == ("Help.", 3)


async def test_a_run_cannot_add_tools_to_an_agent_in_code(tmp_path: Path) -> None:
    in_code = InCodeParts([Agent("clerk", tools=[stock])], tools=[price_of])
    parts = configured_parts(
        in_code.merged_with(EMPTY), {}, tmp_path, knows_attributes=False, in_code=in_code.functions()
    )
    with pytest.raises(ValueError, match="price"):
        await parts.agents.setup(PrepareRequest(agent="clerk", tools=("price",)))


def test_settings_in_code_are_exactly_those_of_a_run() -> None:
    """The code accepts exactly what a type checker accepts."""
    assert {*LoopSettings.__annotations__} == {*LoopConfig.model_fields}
    assert AgentInput(task="go", config={"max_iterations": 3}).config == LoopConfig(max_iterations=3)


REFUSED: Mapping[str, tuple[Callable[[], object], str]] = {
    "two agents of one name": (
        lambda: InCodeParts([Agent("clerk"), Agent("clerk")]).merged_with(EMPTY),
        "two agents given in code are called 'clerk'; rename one of them",
    ),
    "an agent that the file has, too": (
        lambda: InCodeParts([Agent("clerk")]).merged_with(OrgaConfig(agents={"clerk": AgentConfig()})),
        "agent 'clerk' is given in code, and the configuration has one; rename one of them, or remove it",
    ),
    "an MCP server that the file has, too": (
        lambda: InCodeParts(mcp_servers={"docs": {"command": "a"}}).merged_with(
            OrgaConfig(mcp=McpConfig(servers={"docs": McpServer(command="b")}))
        ),
        "MCP server 'docs' is given in code",
    ),
    "an MCP server without a transport": (
        lambda: InCodeParts(mcp_servers={"docs": {}}).merged_with(EMPTY),
        "mcp_servers['docs']: input: needs either a command or a url",
    ),
    "an MCP server of a name that tools cannot have": (
        lambda: InCodeParts(mcp_servers={"my_docs": {"command": "a"}}).merged_with(EMPTY),
        "mcp_servers: servers.my_docs",
    ),
    "an agent without a name": (lambda: Agent(" "), "give it a name"),
    "an unknown setting": (
        lambda: a_clerk(config={"max_steps": 3}),
        "Agent('clerk'): config.max_steps: unknown key",
    ),
    "a limit that is none": (
        lambda: a_clerk(config={"max_iterations": 0}),
        "Agent('clerk'): config.max_iterations",
    ),
    "a tool without types": (
        lambda: a_clerk(tools=[untyped]),
        "tool 'untyped': parameter item has no annotation",
    ),
    "one tool where a list belongs": (
        lambda: a_clerk(tools="read_file"),
        "Agent('clerk'): tools takes a list; write tools=['read_file']",
    ),
    "one function where tools belong": (
        lambda: a_clerk(tools=stock),
        "Agent('clerk'): tools takes a list; write tools=[stock]",
    ),
    "a number where tools belong": (
        lambda: a_clerk(tools=3),
        "Agent('clerk'): tools takes a list; write tools=[...]",
    ),
    "one delegate where a list belongs": (
        lambda: a_clerk(delegates="zz"),
        "Agent('clerk'): delegates takes a list; write delegates=['zz']",
    ),
    "one critic where a list belongs": (
        lambda: a_clerk(critics={"name": "tone"}),
        "Agent('clerk'): critics takes a list; write critics=[...]",
    ),
    "a model without a provider": (
        lambda: a_clerk(model="gpt"),
        "Agent('clerk'): model: 'gpt' names no model: write provider:model",
    ),
    "one agent where a list belongs": (
        lambda: OrgaPlugin(agents=a_clerk()),  # type: ignore[arg-type]  # pyright: ignore
        "agents takes a list; write agents=[Agent('clerk', ...)]",
    ),
    "one function where a list belongs": (
        lambda: OrgaPlugin(tools=stock),  # type: ignore[arg-type]  # pyright: ignore
        "tools takes a list; write tools=[stock]",
    ),
    "a file that there is not": (
        lambda: OrgaPlugin(config="nosuch.toml"),
        "config= names nosuch.toml, which is no file; correct the path or leave it out",
    ),
    "a tool that the worker does not have": (
        lambda: InCodeParts([a_clerk(tools=["nosuch"])]).refuse_unknown_tools(
            {"stock": as_tool(stock).spec}, OrgaConfig().mcp.is_server_tool
        ),
        "Agent('clerk'): no such tool: nosuch; use stock",
    ),
    "a tool that is no function": (
        lambda: a_clerk(tools=[7]),
        "tool 7: it is neither a function nor a tool",
    ),
    "a method without its object": (lambda: a_clerk(tools=[Till.charge]), "give the method of an object"),
    "a class as a tool": (lambda: a_clerk(tools=[Till]), "tool 'Till': it is a class; give a function"),
    "a tool of a name that providers refuse": (
        lambda: a_clerk(tools=[DeferredTool("credit check")]),
        "tool 'credit check': its name does not match",
    ),
    "a name where an agent belongs": (lambda: OrgaPlugin(agents=cast("Any", ["clerk"])), "'clerk' is no orga.Agent"),
    "a list of MCP servers": (
        lambda: OrgaPlugin(mcp_servers=cast("Any", ["docs"])),
        "mcp_servers takes objects by name",
    ),
    "a list of models": (lambda: OrgaPlugin(models=cast("Any", [1])), "models takes objects by name"),
    "a model that the worker does not have": (
        lambda: InCodeParts([a_clerk(model="code:huose")]).refuse_missing_models(ModelRegistry({}).resolve),
        "Agent('clerk'): model: 'code:huose' was not given to this worker",
    ),
}


@pytest.mark.parametrize(("make", "expected"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_part_is_refused(make: Callable[[], object], expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make()
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    "configured",
    [
        pytest.param({"engine": "allow"}, id="an engine that allows everything"),
        pytest.param({"engine": "default"}, id="another engine"),
        pytest.param({"dir": "elsewhere"}, id="another folder"),
        pytest.param({"opa": {"url": "http://localhost:8181"}}, id="a server"),
    ],
)
def test_a_policy_in_code_excludes_a_configured_one(configured: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "all.cedar").write_text("permit (principal, action, resource);")
    config = EMPTY.with_policy(PolicyConfig.model_validate(configured))
    with pytest.raises(ConfigError, match="remove one of them"):
        InCodeParts(policy=tmp_path).merged_with(config)


def test_a_policy_in_code_is_used(tmp_path: Path) -> None:
    (tmp_path / "all.cedar").write_text("permit (principal, action, resource);")
    config = InCodeParts(policy=tmp_path).merged_with(EMPTY)
    assert (config.policy.engine, config.policy.dir) == ("cedar", tmp_path)


def test_a_folder_without_policies_is_refused(tmp_path: Path) -> None:
    """It would have left the decision to a weaker engine."""
    with pytest.raises(ConfigError, match=r"has no \*\.cedar files"):
        InCodeParts(policy=tmp_path).merged_with(EMPTY)


def test_agents_cannot_write_the_application_that_they_run_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sandbox reads the file of a workflow again for each run."""
    module = ModuleType("billing_of_an_application")
    module.__file__ = str(tmp_path / "billing.py")
    before = rules_in_use(EMPTY, tmp_path, {})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    rules = rules_in_use(EMPTY, tmp_path, {})
    assert not before.is_forbidden(tmp_path / "billing.py", tmp_path)
    assert rules.is_forbidden(tmp_path / "billing.py", tmp_path)
    assert not rules.is_forbidden(tmp_path / "notes.md", tmp_path)


def test_a_generator_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Agent\('clerk'\): tools takes a list"):
        a_clerk(tools=(each for each in [stock]))
    with pytest.raises(ConfigError, match="agents takes a list"):
        InCodeParts(a_clerk() for _ in range(1))  # type: ignore[arg-type]  # pyright: ignore


def test_a_tool_may_be_marked_without_parentheses() -> None:
    @tool
    def look(item: str) -> str:
        """Look."""
        return item

    assert as_tool(look).spec.effect == "irreversible"
    assert look("a") == "a"


def test_a_decorator_whose_option_has_no_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"it is no function; name the options, as in @tool\(effect="):
        tool("read_only")  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_an_unknown_effect_is_refused_at_its_definition() -> None:
    with pytest.raises(ValueError, match=r"effect='readonly'.*use one of read_only, idempotent, irreversible"):
        tool(effect="readonly")  # type: ignore[call-overload]  # pyright: ignore


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"task": "x", "agent": "nosuch"}, "agent: there is no agent 'nosuch'", id="an agent"),
        pytest.param({"task": "x", "model": "gpt-5"}, "model: 'gpt-5' names no model", id="a model"),
        pytest.param({"task": "x", "tools": ["nosuch"]}, "tools: agent 'clerk' does not list 'nosuch'", id="a tool"),
        pytest.param({"goal": "x", "pipeline": "nosuch"}, "there is no pipeline 'nosuch'", id="a pipeline"),
        pytest.param({"goal": "x", "deliver": ["nosuch"]}, "deliver: there is no delivery 'nosuch'", id="a delivery"),
    ],
)
async def test_input_that_the_local_worker_would_refuse_is_refused_before_the_start(
    given: dict[str, Any], expected: str
) -> None:
    client, of_clerk = _with_local_worker(), {"agent": "clerk"} | given
    starts = start_goal if "goal" in given else start_agent
    for queue in (None, "ours"):
        with pytest.raises(InvalidInput) as refused:
            await starts(client, of_clerk, task_queue=queue)
        assert expected in str(refused.value)
    with pytest.raises(InvalidInput) as refused:
        await create_schedule(client, "each-day", of_clerk, every=timedelta(days=1))
    assert expected in str(refused.value)


async def test_session_input_that_the_local_worker_would_refuse_is_refused_before_the_start() -> None:
    with pytest.raises(InvalidInput, match="agent 'clerk' does not list 'nosuch'"):
        await start_session(_with_local_worker(), agent="clerk", tools=["nosuch"])
    with pytest.raises(InvalidInput, match="agent 'clerk' does not list 'nosuch'"):
        await start_session(_with_local_worker(), {"agent": "clerk", "tools": ["nosuch"]})
    with pytest.raises(InvalidInput, match="there is no agent 'nosuch'"):
        await start_session(_with_local_worker(), SessionInput(agent="nosuch"), agent="clerk")


def test_input_for_another_worker_and_valid_input_are_not_refused() -> None:
    client = _with_local_worker()
    check_by_local_worker(client, AgentInput(task="x", agent="nosuch"), "of-others")
    check_by_local_worker(client, AgentInput(task="x", agent="clerk"), None)


def _with_local_worker() -> Client:
    client, config = (
        cast("Client", _Connected()),
        InCodeParts([Agent("clerk", model="offline:extractive")]).merged_with(EMPTY),
    )
    set_client_home(client, "ours", None)
    register_check(client, partial(refuse_in_process, config=config))
    return client


class _Connected:
    """Replaces a client."""


async def _as_a_child(tools: Any) -> None:
    await run_agent("look", tools=tools)


async def _as_a_session(tools: Any) -> None:
    await start_session(cast("Client", None), tools=tools)


@pytest.mark.parametrize("begin", [_as_a_child, _as_a_session])
@pytest.mark.parametrize(
    "tools", [pytest.param("search_text", id="one tool instead of a list"), pytest.param(5, id="a number")]
)
async def test_tools_of_a_run_must_be_a_list(begin: Callable[[Any], Awaitable[None]], tools: Any) -> None:
    """A name must not be read as letters, and workflow code must not get an error that is retried forever."""
    with pytest.raises((ApplicationError, InvalidInput), match="tools: Input should be a list"):
        await begin(tools)
