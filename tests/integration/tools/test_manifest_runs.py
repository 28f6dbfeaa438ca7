"""Tools from manifests in runs on a real server: which calls run, which are held, and what is in the histories."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from orga import DeferredTool
from orga.activities.adapters.policy.engines import AllowAll
from orga.client.config.sections import OrgaConfig
from orga.client.workers.parts import configured_tools
from orga.testing import answers, calls
from tests.support.hold import wait_until
from tests.support.runs.approvals import approval_argument, wait_for_held_calls
from tests.support.runs.deferred import completion, waiting_calls
from tests.support.runs.loop import Ran, a_loop
from tests.support.runs.questions import send_update, tool_results_in
from tests.support.tools.manifests import a_manifest_tool
from tests.support.web.echo import EchoServer, echo_server

SECRET = "planted-in-the-environment"
COMMAND = f"""
name = "show"
description = "Show a word."
effect = "read_only"
arguments.word = {{ type = "string" }}
[command]
argv = ["{sys.executable}", "-ISc", "import os, sys; print(sys.argv[1], os.environ['TOKEN'])", "{{word}}"]
env_from = ["TOKEN"]
"""
REQUEST = """
name = "send"
description = "Send a word."
approval = true
arguments.word = { type = "string" }
[http]
method = "POST"
url = "HERE/words/{word}"
headers = { x-key = "{secret:TOKEN}" }
json = { word = "{word}" }
[output]
parser = "json"
"""


@pytest.fixture(name="server")
def a_server() -> Iterator[EchoServer]:
    with echo_server() as server:
        yield server


def nothing_leaks(ran: Ran) -> bool:
    histories = "".join(history.to_json() for history in ran.histories)
    return SECRET not in histories + json.dumps([entry.model_dump(mode="json") for entry in ran.journal])


async def test_a_command_runs_as_a_call_of_the_loop(client: Client, tmp_path: Path) -> None:
    tool = a_manifest_tool(tmp_path, COMMAND, {"TOKEN": SECRET})
    script = [calls("show", arguments={"word": "a; b"}), calls("show", arguments={"word": "-x"}), answers()]
    async with a_loop(client, script, tool) as loop:
        ran = await loop.run()
    good, refused = tool_results_in(loop, 2)
    assert good == "a; b [redacted]"
    assert "word: begins with a dash" in refused
    assert (ran.result.tool_calls.run, ran.result.tool_calls.failed) == (2, 1)
    assert nothing_leaks(ran)


async def test_an_argument_of_the_wrong_type_never_reaches_the_policy(client: Client, tmp_path: Path) -> None:
    tool = a_manifest_tool(tmp_path, COMMAND, {"TOKEN": SECRET})
    async with a_loop(client, [calls("show", arguments={"word": 3}), answers()], tool) as loop:
        ran = await loop.run()
    assert tool_results_in(loop)[0].startswith("[Invalid call] the arguments of show do not fit")
    assert ran.result.tool_calls.run == 0


async def test_a_request_marked_for_approval_waits_for_it(client: Client, tmp_path: Path, server: EchoServer) -> None:
    text = REQUEST.replace("HERE", server.url)
    tool = a_manifest_tool(tmp_path, text, {"TOKEN": SECRET}, allow_hosts=["127.0.0.1"])
    async with a_loop(client, [calls("send", arguments={"word": "a/b"}), answers()], tool) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        assert (question["call"]["arguments"], question["reason"]) == ({"word": "a/b"}, "send is marked for approval")
        assert server.requests == []
        await send_update(handle, "approve", approval_argument(question))
        ran = await loop.ended(handle)
    (request,) = server.requests
    assert (request["path"], request["body"], request["headers"]["x-key"]) == (
        "/words/a%2Fb",
        '{"word": "a/b"}',
        SECRET,
    )
    assert request["headers"]["idempotency-key"]
    assert json.loads(tool_results_in(loop)[0])["path"] == "/words/a%2Fb"
    assert nothing_leaks(ran)


async def test_a_request_or_a_program_that_starts_deferred_work_gets_the_run_and_the_key(
    client: Client, tmp_path: Path, server: EchoServer
) -> None:
    text = REQUEST.replace("HERE", server.url).replace("approval = true", "")
    (tmp_path / "note.py").write_text(
        'import os; open("found", "w").write("\\n".join(map("=".join, os.environ.items())))'
    )
    program = 'arguments.word = { type = "string" }\n[command]\nargv = ["python3", "note.py", "{word}"]\n'
    send = a_manifest_tool(tmp_path, text, {"TOKEN": SECRET}, allow_hosts=["127.0.0.1"])
    tools = [DeferredTool("post", start=send), DeferredTool("run", start=a_manifest_tool(tmp_path, program))]
    async with a_loop(client, [calls("post", "run", arguments={"word": "a"}), answers()], *tools) as loop:
        handle = await loop.start()
        waits = await waiting_calls(handle, 2)
        for wait in waits:
            await send_update(handle, "complete_tool_call", completion(wait))
        await loop.ended(handle)
    [sent], found = server.requests, (tmp_path / "found").read_text().splitlines()
    posted, ran = (wait["wait_id"] for wait in waits)
    assert (sent["headers"]["orga-run"], sent["headers"]["idempotency-key"]) == (handle.id, posted)
    assert {f"ORGA_RUN={handle.id}", f"ORGA_IDEMPOTENCY_KEY={ran}"} <= {*found}


async def test_a_request_that_a_person_denies_is_not_sent(client: Client, tmp_path: Path, server: EchoServer) -> None:
    text = REQUEST.replace("HERE", server.url)
    tool = a_manifest_tool(tmp_path, text, {"TOKEN": SECRET}, allow_hosts=["127.0.0.1"])
    async with a_loop(client, [calls("send", arguments={"word": "a"}), answers()], tool) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        await send_update(handle, "deny", approval_argument(question, reason="no"))
        await loop.ended(handle)
    assert (server.requests, tool_results_in(loop)) == ([], ["[Policy denied] not approved: no"])


async def test_an_engine_that_allows_everything_does_not_ask(
    client: Client, tmp_path: Path, server: EchoServer
) -> None:
    """The mark is a hint, and the verdict of the operator's engine counts."""
    text = REQUEST.replace("HERE", server.url)
    tool = a_manifest_tool(tmp_path, text, {"TOKEN": SECRET}, allow_hosts=["127.0.0.1"])
    async with a_loop(client, [calls("send", arguments={"word": "a"}), answers()], tool, engine=AllowAll()) as loop:
        await loop.run()
    assert len(server.requests) == 1


async def test_a_command_in_flight_ends_with_its_run(client: Client, tmp_path: Path) -> None:
    text = f"""
    name = "wait"
    description = "Wait."
    effect = "read_only"
    [command]
    argv = ["{sys.executable}", "-ISc", "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"]
    """
    tool = a_manifest_tool(tmp_path, text)
    async with a_loop(client, [calls("wait"), answers()], tool) as loop:
        handle = await loop.start()

        async def runs() -> bool:
            return (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text())

        await wait_until(runs)
        await handle.signal("abort", "enough")
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == "aborted"
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


def test_a_worker_has_the_manifests_of_its_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "show.toml").write_text(COMMAND)
    config = OrgaConfig.model_validate(
        {"tools": {"manifests": ["*.toml"], "options": {"show": {"verified": True, "max_attempts": 2}}}}
    )
    spec = configured_tools(config, tmp_path, {"TOKEN": SECRET})["show"].spec
    assert (spec.effect, spec.options.verified, spec.options.max_attempts) == ("read_only", True, 2)
    with pytest.raises(ValueError, match=r"show\.toml: the environment has no TOKEN"):
        configured_tools(config, tmp_path, {})
