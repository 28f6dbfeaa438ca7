"""Tools of MCP servers next to the worker's own: what a run is offered, and which activity runs them."""

from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from orga.activities.adapters.agents.agent_problems import agent_problems
from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.mcp.keeper import MAX_DELAY_S, reconnect_delay_s
from orga.activities.calls.tools import CallServices, dynamic_activity
from orga.activities.models.conversations import Conversations
from orga.activities.ports import AbsentTool, Tool
from orga.client.history.values import data_converter
from orga.testing import FakeTool
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.input import LoopConfig, Recovery
from orga.workflows.types.limits import Ceiling
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.setup import PrepareRequest
from orga.workflows.types.tool_calls.delegation import Delegate
from orga.workflows.types.tool_calls.mcp import meant_server
from orga.workflows.types.tool_calls.tools import NOT_DONE, ToolOptions, ToolSpec
from tests.support.tools.activities import Beats, NoHistory
from tests.support.values.core import a_setup, a_spec


class FakeSource:
    """Two servers: `up` has two tools, and `down` is unavailable."""

    def __init__(self) -> None:
        self.wanted: Collection[str] = ()
        self.asked: list[tuple[str, str]] = []

    async def __aenter__(self) -> object:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        return None

    async def specs(self, wanted: Collection[str]) -> Mapping[str, ToolSpec]:
        self.wanted = wanted
        return {name: a_spec(name, digest=f"digest of {name}") for name in ("up_a", "up_b")}

    def absent_tool(self, name: str) -> AbsentTool | None:
        if name.startswith("down_"):
            return AbsentTool("its server is away", is_temporary=True)
        return AbsentTool("its server has no such tool", is_temporary=False) if name.startswith("up_") else None

    def tool(self, name: str, digest: str) -> Tool | None:
        self.asked.append((name, digest))
        return FakeTool(name, lambda arguments, context: f"{name} ran") if name.startswith("up_") else None

    def options(self, name: str) -> ToolOptions | None:
        return None


def agents(source: FakeSource, *listed: str, **fields: Any) -> ConfiguredAgents:
    known = {"default": AgentConfig(tools=listed, **fields)}
    own = {name: a_spec(name) for name in ("read", "write")}
    return ConfiguredAgents(known, own, "offline:x", lambda model: None, a_setup(), source=source)


@pytest.mark.parametrize(
    ("listed", "request_", "expected"),
    [
        pytest.param(["up_*", "read"], {}, ["up_a", "up_b", "read"], id="a glob, in its place"),
        pytest.param(["up_b", "up_*"], {}, ["up_b", "up_a"], id="once each"),
        pytest.param(["*"], {}, ["up_a", "up_b", "read", "write"], id="all, except tools of the loop"),
        pytest.param(["?rite"], {}, ["write"], id="a glob of the worker's own"),
        pytest.param(["down_*", "down_a", "read"], {}, ["read"], id="without an unavailable server"),
        pytest.param(["up_*"], {"tools": ("up_a",)}, ["up_a"], id="a tool of a glob named by the run"),
        pytest.param(["down_*"], {"tools": ("down_a",)}, [], id="an unavailable tool named by the run"),
        pytest.param(["up_*"], {"ceiling": Ceiling(tools=("*_b",))}, ["up_b"], id="under a ceiling"),
    ],
)
async def test_a_run_is_offered_these_tools(listed: list[str], request_: dict[str, Any], expected: list[str]) -> None:
    setup = await agents(FakeSource(), *listed).setup(PrepareRequest(**request_))
    assert [tool.name for tool in setup.tools] == expected


class FetchSource(FakeSource):
    """A server `fetch`, whose tools bear names like that of the worker's own `fetch_url`; it may be away."""

    def __init__(self, *tools: str) -> None:
        super().__init__()
        self.tools = tools

    async def specs(self, wanted: Collection[str]) -> Mapping[str, ToolSpec]:
        return {name: a_spec(name, digest=f"digest of {name}") for name in self.tools}

    def absent_tool(self, name: str) -> AbsentTool | None:
        server = meant_server(name, ["fetch"])
        return (
            AbsentTool(f"the MCP server {server!r} has no such tool", is_temporary=not self.tools) if server else None
        )


OWN = ("fetch_url", "read_file", "fetch_own")
UP = ("fetch_page", "fetch_uri")


@pytest.mark.parametrize(
    ("source", "listed", "request_", "expected"),
    [
        pytest.param(FetchSource(*UP), ["fetch_*"], {}, ["fetch_page", "fetch_uri"], id="all of the server"),
        pytest.param(FetchSource(*UP), ["fetch_ur?"], {}, ["fetch_uri"], id="a single-character wildcard"),
        pytest.param(
            FetchSource(*UP), ["fetch_?rl", "read_file"], {}, ["read_file"], id="only the built-in tool would match"
        ),
        pytest.param(FetchSource(*UP), ["fetch_url*"], {}, [], id="its whole name and a star"),
        pytest.param(
            FetchSource(*UP), ["fetch_*", "fetch_url"], {}, [*UP, "fetch_url"], id="the built-in tool named as well"
        ),
        pytest.param(FetchSource(*UP), ["*_url"], {}, ["fetch_url"], id="a glob of no server"),
        pytest.param(FetchSource(*UP), ["*"], {}, [*UP, *OWN], id="all tools"),
        pytest.param(FetchSource(), ["fetch_*", "read_file"], {}, ["read_file"], id="the server is away"),
        pytest.param(FakeSource(), ["fetch_*"], {}, ["fetch_url", "fetch_own"], id="another server"),
        pytest.param(FakeSource(), ["fetch_?rl"], {}, ["fetch_url"], id="another server, a letter"),
        pytest.param(None, ["fetch_*"], {}, ["fetch_url", "fetch_own"], id="no server"),
        pytest.param(FetchSource(*UP), ["*"], {"ceiling": Ceiling(tools=("fetch_*",))}, [*UP], id="as a ceiling"),
    ],
)
async def test_a_glob_with_the_prefix_of_a_server_matches_only_its_tools(
    source: FakeSource | None, listed: list[str], request_: dict[str, Any], expected: list[str]
) -> None:
    known = {"default": AgentConfig(tools=tuple(listed))}
    own = {name: a_spec(name) for name in OWN}
    configured = ConfiguredAgents(known, own, "offline:x", lambda model: None, a_setup(), source=source)
    setup = await configured.setup(PrepareRequest(**request_))
    assert [tool.name for tool in setup.tools] == expected


@pytest.mark.parametrize("source", [FetchSource(*UP), FetchSource()])
async def test_a_run_cannot_name_tools_that_the_glob_of_a_server_does_not_match(source: FakeSource) -> None:
    known = {"default": AgentConfig(tools=("fetch_*",))}
    own = {name: a_spec(name) for name in OWN}
    configured = ConfiguredAgents(known, own, "offline:x", lambda model: None, a_setup(), source=source)
    with pytest.raises(InvalidInput, match="does not list 'fetch_url'"):
        await configured.setup(PrepareRequest(tools=("fetch_url",)))


async def test_offered_tools_have_their_digest() -> None:
    setup = await agents(FakeSource(), "up_a").setup(PrepareRequest())
    assert [tool.digest for tool in setup.tools] == ["digest of up_a"]


@pytest.mark.parametrize(
    ("listed", "request_", "why"),
    [
        pytest.param(["up_c"], {}, "its server has no such tool", id="a tool that its server lacks"),
        pytest.param(["nobody_*"], {}, "no tool of this worker fits 'nobody_*'", id="a glob without a match"),
        pytest.param(["nobody_a"], {}, "no tool 'nobody_a'", id="an unknown tool"),
        pytest.param(["up_a"], {"tools": ("up_b",)}, "does not list 'up_b'", id="a tool that the agent does not list"),
        pytest.param(["up_*"], {"tools": ("up_*",)}, "does not list 'up_*'", id="a glob in the request of the run"),
        pytest.param(["*"], {"tools": ("terminate",)}, "does not list 'terminate'", id="a tool of the loop"),
        pytest.param(["*"], {"tools": ("delegate",)}, "does not list 'delegate'", id="delegation"),
    ],
)
async def test_these_tools_cannot_be_offered(listed: list[str], request_: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        await agents(FakeSource(), *listed).setup(PrepareRequest(**request_))
    assert why in str(raised.value)


async def test_an_unavailable_alternative_is_no_error() -> None:
    source = FakeSource()
    config = LoopConfig(recovery=Recovery(strategy="fallback", alternatives=("down_a",)))
    assert await agents(source, "read", config=config).setup(PrepareRequest())
    assert set(source.wanted) == {"read", "down_a"}


async def test_definitions_that_are_too_large_together_are_refused() -> None:
    source = FakeSource()
    own = {f"t{n}": a_spec(f"t{n}", description="x" * 40_000) for n in range(16)}
    known = ConfiguredAgents(
        {"default": AgentConfig(tools=("t*",))}, own, "offline:x", lambda model: None, a_setup(), source=source
    )
    with pytest.raises(InvalidInput, match=r"16 tools have 65.* bytes together"):
        await known.setup(PrepareRequest())


def problems(*listed: str) -> list[str]:
    known = {
        "default": AgentConfig(tools=listed),
        "other": AgentConfig(delegates=(Delegate(agent="default", tools=("up_a",)),)),
    }
    found = agent_problems(known, {"list_files": a_spec(), "read_file": a_spec(), "search_text": a_spec()}, _is_up)
    return [each.problem for each in found]


def _is_up(tool: str) -> bool:
    return tool.startswith("up_")


def test_doctor_reports_unknown_tools() -> None:
    assert problems("up_*", "read_*") == []
    assert problems("up_a", "nobody_*", "nobody_a") == ["no such tool: nobody_*, nobody_a"]


def beats(activity_type: str) -> Beats:
    made = Beats(activity_type=activity_type)
    made.environment.payload_converter = data_converter.payload_converter
    return made


def given(digest: str = "") -> list[RawValue]:
    data = f'{{"call_id": "c1", "key": "k", "digest": "{digest}"}}'.encode()
    return [RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))]


async def test_one_activity_runs_all_tools_of_a_source() -> None:
    source = FakeSource()
    run = dynamic_activity(source, CallServices(Conversations(NoHistory())))
    output = await beats("up_a").run(run, given("pinned"))
    assert (output.content, source.asked) == ("up_a ran", [("up_a", "pinned")])


@pytest.mark.parametrize("source", [FakeSource(), None])
async def test_an_unknown_activity_is_not_found_and_did_nothing(source: FakeSource | None) -> None:
    run = dynamic_activity(source, CallServices(Conversations(NoHistory())))
    with pytest.raises(ApplicationError) as raised:
        await beats("nobody_a").run(run, given())
    assert (raised.value.type, raised.value.details) == ("NotFoundError", (NOT_DONE,))


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [
        pytest.param(0, 0, id="none after a useful connection"),
        pytest.param(1, 0.25, id="short at first"),
        pytest.param(3, 1, id="doubling"),
        pytest.param(9, MAX_DELAY_S, id="up to a minute"),
        pytest.param(100_000, MAX_DELAY_S, id="never longer"),
    ],
)
def test_the_delay_before_a_reconnect_doubles_up_to_a_minute(failures: int, seconds: float) -> None:
    assert reconnect_delay_s(failures) == seconds
