"""Any failure of an irreversible call, except a definite refusal, is reported to the model as an unknown outcome."""

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from orga.activities.adapters.tools.python_function import PythonFunction
from orga.activities.ports import Tool, ToolContext
from orga.client.cli.shown.narration import entry_lines
from orga.client.journal.run_view import RunView
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.tool_calls.breakers import BreakerOptions
from orga.workflows.types.tool_calls.mcp import McpServer
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolOutput, ToolSpec
from tests.support.mcp.hostile_http import hostile_http
from tests.support.mcp.loop import an_mcp_loop
from tests.support.runs.loop import Ran, a_loop, a_worker
from tests.support.runs.questions import send_update, tool_results_in, wait_for_question
from tests.support.tools.charging import charge
from tests.support.tools.manifests import a_manifest_tool
from tests.support.web.raw import answer, raw_http

UNKNOWN = ". The outcome is unknown: it may have taken effect. Do not call it again before you have found out"
SHOWN_UNKNOWN = ". The outcome is unknown: it may have taken effect."
SHOWN_DONE = ". It took effect, its answer can't be read."
DONE = ". It took effect, its answer can't be read. Do not call it again."
PAY = """
name = "pay"
description = "Pay."
effect = "EFFECT"
arguments.way = { type = "string" }
[http]
method = "METHOD"
url = "HERE/{way}"
[output]
parser = "json"
"""
REFUSED = (400, 401, 402, 403, 404, 405, 410, 413, 415, 421, 422, 423, 425, 426, 429, 451)
OPEN = (300, 302, 304, 307, 308, 408, 409, 418, 424, 499, 500, 501, 502, 503, 504, 507, 520, 599)
BROKEN: dict[str, bytes] = {
    "cut": b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{",
    "hangs-up": b"",
    "no-http": b"SSH-2.0-OpenSSH\r\n",
    "refused-and-cut": b"HTTP/1.1 400 Bad\r\ncontent-length: 900\r\n\r\n{",
}
UNREADABLE = {
    "html": answer("200 OK", b"<html>thanks</html>"),
    "nothing": answer("204 No Content"),
    "accepted": answer("202 Accepted", b"on its way"),
    "damaged": answer("201 Created", b"\x1f\x8bno gzip", "content-encoding: gzip"),
    "odd-encoding": answer("200 OK", b"{}", "content-encoding: br"),
    "too-long": answer("200 OK", b'"' + b"a" * 2_000_000 + b'"'),
}


UNGUARDED = BreakerOptions(enabled=False)


@dataclass
class Unguarded:
    """A tool without a circuit, so that every call is made."""

    tool: Tool

    @property
    def spec(self) -> ToolSpec:
        """The spec of the tool."""
        options = self.tool.spec.options.model_copy(update={"breaker": UNGUARDED})
        return self.tool.spec.model_copy(update={"options": options})

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Make the call."""
        return await self.tool.call(arguments, context)


def each(name: str, argument: str, values: list[str]) -> Reply:
    """Return a reply that calls the tool once with each value."""
    made = (ToolCall(call_id=f"c{n}", name=name, arguments={argument: value}) for n, value in enumerate(values))
    return Reply.of(calls=tuple(made), finish="tool_calls")


async def results_for(client: Client, one: Tool, argument: str, values: list[str]) -> dict[str, str]:
    """Return what the model reads about a call with each value, thirty calls in a reply."""
    name = one.spec.name
    async with a_loop(
        client, [each(name, argument, values[:30]), each(name, argument, values[30:]), answers()], Unguarded(one)
    ) as loop:
        ran = await loop.run(max_concurrent_tools=20)
        found = dict(zip(values, tool_results_in(loop, 2), strict=True))
    shown = shown_effects(ran)
    read = [next((text for text in (SHOWN_UNKNOWN, SHOWN_DONE) if text in result), "") for result in found.values()]
    assert shown == read, "people read the same as the model"
    return found


def shown_effects(ran: Ran) -> list[str]:
    """Return what the journal shows to people about the effect of each call. A call without a text gives `""`."""
    run, lines = RunView(), list[str]()
    for entry in ran.journal:
        viewed = run.take(entry)
        if entry.event == "ObservationsCollected":
            lines += [line.text for line in entry_lines(viewed) if line.text != "nothing was run"]
    return [next((shown for shown in (SHOWN_UNKNOWN, SHOWN_DONE) if f"{shown} (" in line), "") for line in lines]


async def paid(client: Client, root: Path, served: Mapping[str, bytes], effect: str, method: str) -> dict[str, str]:
    async with raw_http(served) as (url, asked):
        text = PAY.replace("HERE", url).replace("EFFECT", effect).replace("METHOD", method)
        one = a_manifest_tool(root, text, allow_hosts=["127.0.0.1"])
        found = await results_for(client, one, "way", list(served))
    assert set(asked) == {f"/{way}" for way in served}
    return found


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_which_web_responses_to_an_irreversible_request_leave_the_outcome_unknown(
    client: Client, tmp_path: Path, method: str
) -> None:
    refused = {str(status): answer(f"{status} Said") for status in REFUSED}
    unknown = {str(status): answer(f"{status} Said", b"{}") for status in OPEN} | BROKEN
    found = await paid(client, tmp_path, {**refused, **unknown, **UNREADABLE}, "irreversible", method)
    assert {way for way in refused if "unknown" in found[way] or "effect" in found[way]} == set()
    assert {way for way in unknown if UNKNOWN not in found[way]} == set()
    assert {way for way in UNREADABLE if not found[way].endswith(DONE)} == set()
    assert {way for way in found if "again later" in found[way] or "ask for less" in found[way]} == set()


async def test_a_failed_idempotent_request_has_no_unknown_outcome(client: Client, tmp_path: Path) -> None:
    served = {"502": answer("502 Bad Gateway"), "html": UNREADABLE["html"]}
    found = await paid(client, tmp_path, served, "idempotent", "POST")
    assert {way for way in found if "unknown" in found[way] or "effect" in found[way]} == set()


async def test_a_redirected_get_may_have_acted(client: Client, tmp_path: Path) -> None:
    """The response after a redirect does not show what the first server did."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    served = {
        "to-nowhere": answer("302 Found", b"", f"location: {gone}"),
        "to-404": answer("302 Found", b"", "location: /missing"),
        "to-private": answer("302 Found", b"", "location: http://10.0.0.1/"),
        "to-ftp": answer("302 Found", b"", "location: ftp://example.org/"),
        "round": answer("302 Found", b"", "location: /round"),
    }
    async with raw_http({**served, "missing": answer("404 Not Found")}) as (url, _):
        text = PAY.replace("HERE", url).replace("EFFECT", "irreversible").replace("METHOD", "GET")
        found = await results_for(
            client, a_manifest_tool(tmp_path, text, allow_hosts=["127.0.0.1"]), "way", list(served)
        )
    assert {way for way in found if UNKNOWN not in found[way]} == set()


async def test_a_request_that_was_never_sent_has_no_unknown_outcome(client: Client, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    places = [f"http://127.0.0.1:{port}", "http://10.0.0.1", "http://no-such-host.invalid"]
    for number, place in enumerate(places):
        text = PAY.replace("HERE", place).replace("EFFECT", "irreversible").replace("METHOD", "POST")
        one = a_manifest_tool(tmp_path, text, allow_hosts=[f"127.0.0.1:{port}"])
        found = await results_for(client, one, "way", ["x"])
        assert found["x"].startswith("[Error] "), number
        assert "unknown" not in found["x"], number


async def test_which_exit_codes_of_a_command_leave_the_outcome_unknown(client: Client, tmp_path: Path) -> None:
    """An exit code is not a refusal, unless the manifest declares it as one."""
    code = (
        "import os, sys; how = sys.argv[1]; print(how); os.kill(os.getpid(), 9) if how == '9' else sys.exit(int(how))"
    )
    text = f"""
name = "pay"
description = "Pay."
arguments.how = {{ type = "string" }}
[command]
argv = ["{sys.executable}", "-ISc", "{code}", "{{how}}"]
refusal_codes = [3]
[output]
parser = "regex"
pattern = "x"
schema = {{ type = "array", minItems = 1 }}
strict = true
"""
    found = await results_for(client, a_manifest_tool(tmp_path, text), "how", ["0", "1", "3", "9"])
    assert found["0"].endswith(DONE)
    assert UNKNOWN in found["1"]
    assert UNKNOWN in found["9"]
    assert "effect" not in found["3"]


async def test_a_call_that_reaches_a_worker_without_its_tool_has_no_unknown_outcome(client: Client) -> None:
    """A rolling restart with another configuration has such workers for a while."""
    queue = f"test-{uuid4()}"
    pay = FakeTool("pay", effect="irreversible", options={"task_queue": queue})
    async with a_loop(client, [calls("pay"), answers()], pay) as loop:
        async with a_worker(replace(loop, task_queue=queue)):
            ran = await loop.run()
        [result] = tool_results_in(loop, 1)
    assert "the worker has no tool or activity 'pay'" in result
    assert shown_effects(ran) == [""]
    assert "unknown" not in result


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_which_endings_of_a_python_function_leave_the_outcome_unknown(client: Client, isolation: Any) -> None:
    function = PythonFunction(charge, path="tests.support.tools.charging:charge", isolation=isolation)
    unknown = ["error", "timeout", "connection", "exit", "passing", "said", "no JSON"]
    refused, booked = ["refused", "not begun"], ["booked", "in itself"]
    found = await results_for(client, function, "how", [*unknown, *refused, *booked])
    assert {way for way in unknown if UNKNOWN not in found[way]} == set()
    assert {way for way in refused if "unknown" in found[way] or "effect" in found[way]} == set()
    assert {way for way in booked if not found[way].endswith(DONE)} == set()


async def test_which_answers_of_an_mcp_server_leave_the_outcome_unknown(client: Client) -> None:
    refused = ["400", "401", "403", "429", "400 json", "422 json", "error -32602", "error -32601", "400 error -32600"]
    unknown = ["500", "502", "503", "504", "500 json", "502 json", "504 json", "502 error -32602", "409", "307", "202"]
    unknown += ["html", "no json", "error -32603", "error -32000", "error -32600", "is_error", "no result", "hang up"]
    with hostile_http() as server:
        servers = {"s": McpServer(url=server.url, options=ToolOptions(breaker=UNGUARDED))}
        ways = [*refused, *unknown]
        steps = [*(each("s_act", "answer", [way]) for way in ways), answers()]
        async with an_mcp_loop(client, steps, servers, listed=["s_act"], env=os.environ) as loop:
            await loop.run(max_iterations=60)
            found = dict(zip(ways, tool_results_in(loop, len(ways)), strict=True))
    assert {way: found[way] for way in refused if "unknown" in found[way]} == {}
    assert {way: found[way] for way in unknown if UNKNOWN not in found[way]} == {}


async def test_no_recovery_invites_the_model_to_repeat_a_call_with_unknown_outcome(client: Client) -> None:
    """`llm_recovery` asks for a corrected call after a definite failure, but here there is nothing to correct."""
    options = ToolOptions(recovery=Recovery(strategy="llm_recovery"))

    def fails(arguments: dict[str, Any], context: Any) -> str:
        raise RuntimeError("502")

    async with a_loop(
        client, [calls("pay"), answers()], FakeTool("pay", fails, "irreversible", options=options)
    ) as loop:
        await loop.run()
    assert UNKNOWN in tool_results_in(loop)[0]
    assert "Correct the call" not in tool_results_in(loop)[0]


@pytest.mark.parametrize("strategy", ["escalate", "dead_letter"])
async def test_people_learn_that_the_outcome_is_unknown(client: Client, strategy: Any) -> None:
    options = ToolOptions(recovery=Recovery(strategy=strategy))

    def fails(arguments: dict[str, Any], context: Any) -> str:
        raise RuntimeError("x" * 3_000)

    async with a_loop(
        client, [calls("pay"), answers()], FakeTool("pay", fails, "irreversible", options=options)
    ) as loop:
        handle = await loop.start()
        shown: str = ""
        if strategy == "escalate":
            wait = await wait_for_question(handle)
            shown = wait["data"]["error"]
            await send_update(handle, "resolve_escalation", {"escalation_id": wait["wait_id"], "choice": "skip"})
        await loop.ended(handle)
        if strategy == "dead_letter":
            shown = (await handle.query("status"))["dead_letters"][0]["error"]
    assert shown.endswith("The outcome is unknown: it may have taken effect.")
