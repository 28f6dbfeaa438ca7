"""`orga mcp-server` on a real server, with clients of other makers: the `mcp` package's, and the MCP inspector."""

import asyncio
import json
import re
import subprocess
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.context import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from tests.support.model.chat_server import Calls, Says
from tests.support.parts.front_ends import front_end_path
from tests.support.programs.orga_command import COMMAND, ROOT, Orga
from tests.support.scenarios.till import REFUNDS, Till, a_till


@pytest.fixture(scope="module")
def till(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Till]:
    with a_till(tmp_path_factory) as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_is_paid(till: Till) -> None:
    till.paid.write_text("")


def typed(till: Till, *words: str) -> str:
    """Run a command in a process of its own, as this one has a loop, and return what it prints."""
    return Orga(till.orga.folder, till.orga.env)(*words).out


@asynccontextmanager
async def assistant(orga: Orga, *options: str, **more: Any) -> AsyncGenerator[Client]:
    arguments = [*COMMAND[1:], "mcp-server", "--no-worker", *options]
    server = StdioServerParameters(command=COMMAND[0], args=arguments, env=orga.env, cwd=orga.folder)
    async with Client(server, **more) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool, and return its structured result."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def error(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return str(result.content[0])


async def test_a_run_is_started_and_ends(till: Till) -> None:
    till.model.replies = [Calls("read_file", {"path": "notes.md"}), Says(["On 4 May."])]
    async with assistant(till.orga, "--agent-tools") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {
            *("start_run", "run_state", "result", "answer", "steer", "abort"),
            *("ask_default", "ask_cashier"),
        }
        ended = await call(client, "start_run", task="When?")
        assert (ended["state"], ended["output"], ended["iteration"]) == ("completed", "On 4 May.", 2)
        assert await call(client, "result", run_id=ended["run_id"]) == ended
        assert (await call(client, "ask_default", task="When?"))["output"] == "On 4 May."
        assert "cashier" in await error(client, "start_run", task="x", agent="cashire")


async def test_a_call_returns_in_time_and_the_run_goes_on(till: Till) -> None:
    till.model.replies = [Says(["slowly ", "done"], hold=True)]
    seen: list[str | None] = []

    async def noted(progress: float, total: float | None, message: str | None) -> None:
        assert progress <= (total or 0)
        seen.append(message)

    async with assistant(till.orga) as client:
        started = time.monotonic()
        result = await client.call_tool("start_run", {"task": "Go", "wait_s": 2}, progress_callback=noted)
        state = result.structured_content
        assert state is not None
        assert (state["state"], time.monotonic() - started < 10) == ("running", True)
        assert seen
    till.model.release.set()
    async with assistant(till.orga) as client:
        ended = await call(client, "run_state", run_id=state["run_id"])
        assert (ended["state"], ended["output"]) == ("completed", "slowly done")
    till.model.release.clear()


async def test_held_calls_are_decided_only_if_the_operator_may(till: Till) -> None:
    till.model.replies = [REFUNDS, Says(["Decided."])]
    async with assistant(till.orga) as client:
        state = await call(client, "start_run", task="Pay")
        assert (state["state"], [wait["kind"] for wait in state["waits"]]) == ("waiting", ["approval"])
        calls = state["waits"][0]["calls"]
        assert [json.loads(each["arguments"])["order"] for each in calls] == ["A", "B"]
        assert "Unknown tool" in await error(
            client, "decide", run_id=state["run_id"], wait_id=calls[0]["approval_id"], decision="approve"
        )
    async with assistant(till.orga, "--may-decide") as client:
        run, (first, second) = state["run_id"], [each["approval_id"] for each in calls]
        assert "does not wait" in await error(client, "decide", run_id=run, wait_id="none", decision="approve")
        assert "does not fit" in await error(client, "decide", run_id=run, wait_id=first, decision="skip")
        await call(client, "decide", run_id=run, wait_id=first, decision="approve", wait_s=1)
        ended = await call(client, "decide", run_id=run, wait_id=second, decision="deny", reason="not this one")
        assert (ended["state"], ended["output"]) == ("completed", "Decided.")
        assert till.paid.read_text() == "A 1\n"
    resolved = [
        entry["data"]["approver"]
        for entry in map(json.loads, typed(till, "journal", run, "--json").splitlines())
        if entry["event"] == "ApprovalResolved" and entry["data"]["kind"] == "call"
    ]
    assert resolved == ["ada", "ada"]


ASKS = [Calls("ask_user", {"question": "Which?", "options": ["red", "blue"]}), Says(["Noted."])]


async def test_a_question_is_answered_by_a_tool(till: Till) -> None:
    till.model.replies = ASKS
    async with assistant(till.orga) as client:
        state = await call(client, "start_run", task="Ask me")
        [wait] = state["waits"]
        assert (wait["kind"], wait["question"], wait["options"]) == ("answer", "Which?", ["red", "blue"])
        assert "answer with one of: red, blue" in await error(client, "answer", run_id=state["run_id"], text="green")
        assert (await call(client, "answer", run_id=state["run_id"], text="blue"))["output"] == "Noted."


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("accepts", [True, False], ids=["accepted", "declined"])
async def test_a_question_is_asked_in_a_form(till: Till, mode: Literal["auto", "legacy"], accepts: bool) -> None:
    till.model.replies = ASKS
    asked: list[str] = []

    async def fill_in(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        if accepts:
            return ElicitResult(action="accept", content={"answer": "blue"})
        return ElicitResult(action="decline")

    async with assistant(till.orga, mode=mode, elicitation_callback=fill_in) as client:
        state = await call(client, "start_run", task="Ask me")
        assert asked == ["Which?"]
        assert state["state"] == ("completed" if accepts else "waiting")
        ended = state if accepts else await call(client, "abort", run_id=state["run_id"], why="enough")
        assert (ended["state"], ended["output"]) == (("completed", "Noted.") if accepts else ("aborted", ""))


async def test_what_is_not_there_is_refused(till: Till) -> None:
    till.model.replies = [Says(["Hello."])]
    other = typed(till, "run", "Hello", "--detach", "--no-worker", "--tenant", "acme").strip()
    async with assistant(till.orga, "--tenant", "other", "--may-decide") as client:
        for run in (other, "agent-none", "", "\x00", "x" * 999, "../../etc"):
            for tool, more in (
                *(("run_state", {}), ("result", {}), ("answer", {"text": "x"}), ("steer", {"guidance": "x"})),
                *(("abort", {}), ("decide", {"wait_id": "x", "decision": "approve"})),
            ):
                assert "there is no run" in await error(client, tool, run_id=run, **more), (tool, run)
        for wrong in ({"wait_s": 56}, {"wait_s": -1}, {"run_id": 5}, {"run_id": "x" * 5_000}):
            assert "validation error" in await error(client, "run_state", **{"run_id": other, **wrong})
        assert "task: must not be empty" in await error(client, "start_run", task=" ")
        ours = await asyncio.gather(*(call(client, "start_run", task=f"Task {n}") for n in range(20)))
        assert {each["output"] for each in ours} == {"Hello."}
        tenants = {run["tenant"] for run in json.loads(typed(till, "list", "--json", "--limit", "50"))}
        assert {"acme", "other"} <= tenants


def test_the_inspector_lists_and_calls(till: Till) -> None:
    till.model.replies = [Says(["Hello."])]

    def inspect(*words: str) -> dict[str, Any]:
        named = [f"{name}={value}" for name, value in till.orga.env.items() if name.startswith(("ORGA_", "PYTHONPATH"))]
        passed = [word for each in named for word in ("-e", each)]
        named_command = [*COMMAND, "mcp-server", "--no-worker"]
        command = ["mcp-inspector", "--cli", "--connect-timeout", "60000", *passed, *named_command, *words]
        env = till.orga.env | {"PATH": front_end_path()}
        done = subprocess.run(
            command, cwd=till.orga.folder, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    guide = (ROOT / "docs" / "front-ends.md").read_text()
    [added] = re.findall(r"^claude mcp add orga -- \S+/orga mcp-server (.*)$", guide, re.MULTILINE)
    [block] = [each for each in re.findall(r"```json\n(.*?)```", guide, re.DOTALL) if "mcpServers" in each]
    assert json.loads(block)["mcpServers"]["orga"]["args"] == ["mcp-server", *added.split()]
    tools = inspect(*added.split(), "--method", "tools/list", "--strict")["tools"]
    assert {tool["name"] for tool in tools} >= {"start_run", "run_state", "result", "ask_cashier"}
    ran = inspect("--method", "tools/call", "--tool-name", "start_run", "--tool-arg", "task=Hi there")
    assert ran["structuredContent"]["output"] == "Hello."
