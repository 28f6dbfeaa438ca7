"""Secrets planted in the environment of every adapter do not leak, although every server and tool repeats them."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from orga.activities.text.secrets import REDACTED
from orga.client.history.values import data_converter
from tests.support.mcp import hostile as mcp_hostile
from tests.support.mcp.http_servers import modern
from tests.support.mcp.sources import set_definitions
from tests.support.model.chat_server import Calls, CallsAtOnce, ChatServer, ScriptedReply, TellsHeaders, chat_server
from tests.support.programs.inline_command import InlineOrga
from tests.support.programs.orga_command import Done, Orga, an_orga
from tests.support.values.planted import CREDENTIALS, MARK, a_secret, around_marks, marked_files, planted
from tests.support.web.otlp_receiver import Receiver, otlp_receiver
from tests.support.web.repeated_headers import FORBIDDEN, indiscreet_server

CANARY = "canary-that-a-tool-reads-55c2"
REFUSED = ("openai", "openrouter", "anthropic", "ollama")
TOLD = {name: a_secret(name) for name in ("HOSTILE_TOKEN", "MCP_BEARER", "TEAM_PASSWORD", "PASSPHRASE")}
QUOTED = {"QUOTED_SECRET": f'{MARK}-"quoted\\-é'}

CONFIG = """
[models]
default = "openai-compatible:m"
base_urls = {{ {urls} }}

[agents.default]
tools = ["read_file", "run_command", "read_issue", "read_pull_request", "tell_environment", "tell_error",
         "tell_log", "tell_cause", "s_*", "web_header", "show_env"]

{agents}

[tools]
manifests = ["show_env.toml"]
python = ["telling:tell_environment", "telling:tell_error", "telling:tell_log", "telling:tell_cause"]
commands = {{ allow = ["env"] }}
github = {{ base_url = "{server}", repo = "acme/app" }}

[mcp.servers.s]
command = '{python}'
args = ['{hostile}', '{folder}']
env_from = ["HOSTILE_TOKEN"]

[mcp.servers.gone]
command = '{python}'
args = ['{hostile}', '{folder}', 'exits']
env_from = ["HOSTILE_TOKEN"]

[mcp.servers.web]
url = "{web}"
bearer_from = "MCP_BEARER"

[mcp.servers.closed]
url = "{server}/mcp"
headers_from = {{ X-Team = "TEAM_PASSWORD" }}

[policy.opa]
url = "{server}"

[notify]
url = "{server}/hook"
events = ["ended"]

[telemetry]
enabled = true
endpoint = "{collector}"
export_interval_s = 1
"""
TOOLS = '''
import json
import logging
import os

from orga.activities.tools_api import ToolContext, ToolError, tool


@tool(effect="read_only")
def tell_environment(context: ToolContext) -> str:
    """Tell the environment."""
    context.heartbeat(f"progress {os.environ['GITHUB_TOKEN']}")
    logging.getLogger("tool").error("the environment is %s", dict(os.environ))
    return json.dumps(dict(os.environ)) + repr(dict(os.environ))


@tool(effect="read_only")
def tell_error() -> str:
    """Fail with a header."""
    raise ToolError(f"authorization: {os.environ['OPENAI_API_KEY']}")


@tool(effect="irreversible")
async def tell_cause() -> str:
    """Fail as code does that nobody expected to."""
    try:
        raise ValueError(os.environ["ANTHROPIC_API_KEY"])
    except ValueError as error:
        raise RuntimeError(f"headers: {os.environ['OPA_TOKEN']}") from error


@tool(effect="irreversible")
def tell_log() -> str:
    """Is denied."""
    return "told"
'''
MANIFEST = """
name = "show_env"
description = "Show the environment."
effect = "read_only"

[command]
argv = ["env"]
env_from = ["PASSPHRASE"]
"""
NO_ARGUMENTS = ("show_env", "tell_environment", "tell_error", "tell_cause", FORBIDDEN, "s_env", "s_fail", "s_progress")
REPLIES: tuple[ScriptedReply, ...] = (
    CallsAtOnce([Calls("read_file", {"path": "notes.md"}), Calls("run_command", {"command": ["env"]})]),
    CallsAtOnce([Calls("read_issue", {"reference": "#42"}), Calls("read_pull_request", {"reference": "#43"})]),
    CallsAtOnce([Calls(name, {}) for name in NO_ARGUMENTS]),
    CallsAtOnce([Calls("web_header", {"name": "authorization"}), Calls("read_file", {"path": "/proc/self/environ"})]),
    TellsHeaders(),
)
RUN = "agent-with-secrets"


@dataclass
class Suite:
    """All output that was produced while secrets were present."""

    orga: Orga
    home: Path
    chat: ChatServer
    collector: Receiver
    received_texts: list[str]
    """Everything that the servers received."""
    done: dict[str, Done] = field(default_factory=dict[str, Done])
    ran: dict[str, Done] = field(default_factory=dict[str, Done])


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """A run through every adapter, runs that every provider refuses, and the output of commands about them."""
    folder, home, keys = (tmp_path_factory.mktemp(name) for name in ("project", "home", "keys"))
    (folder / "notes.md").write_text(CANARY)
    (folder / "telling.py").write_text(TOOLS)
    (folder / "show_env.toml").write_text(MANIFEST)
    set_definitions(folder, "env", "fail", "progress")
    with ExitStack() as stack:
        server, received_texts = stack.enter_context(indiscreet_server())
        chat, collector = stack.enter_context(chat_server(*REPLIES)), stack.enter_context(otlp_receiver())
        web = stack.enter_context(modern(folder))
        places = {"openai-compatible": chat.url, **dict.fromkeys(REFUSED, f"{server}/v1")}
        config = CONFIG.format(
            urls=", ".join(f'{provider} = "{url}"' for provider, url in places.items()),
            agents="".join(f'[agents.{provider}]\nmodel = "{provider}:m"\ntools = []\n' for provider in REFUSED),
            server=server,
            python=sys.executable,
            hostile=mcp_hostile.__file__,
            folder=folder,
            web=web.url,
            collector=collector.url,
        )
        (folder / "orga.toml").write_text(config)
        secrets = planted(CREDENTIALS) | TOLD | QUOTED
        secrets["ORGA_SIGNING_KEY_FILE"] = str(keys / "signing.key")
        orga = InlineOrga(folder, an_orga(folder, home, **secrets).env)
        found = Suite(orga, home, chat, collector, received_texts)
        found.done["keygen"] = orga("audit", "keygen", "--out", str(keys / "signing.key"))
        with orga.started("worker", "--json-logs") as worker:
            worker.line("polls task queue")
            found.ran["default"] = orga("run", "read the notes", "--id", RUN, "--json")
            for provider in REFUSED:
                found.ran[provider] = orga("run", "hello", "--agent", provider, "--id", f"{RUN}-{provider}", "--json")
            for command in COMMANDS:
                found.done[" ".join(command)] = orga(*command)
            worker.send(15)
            worker.code()
            found.done["worker"] = Done(0, "\n".join(worker.out), "\n".join(worker.err))
        yield found
        orga("server", "--stop")


COMMANDS = (
    ("journal", RUN, "--json"),
    ("journal", RUN, "--export", "run.jsonl", "--sign"),
    ("audit", RUN, "--all", "--json"),
    ("verify", RUN),
    ("status", RUN, "--json"),
    ("conversation", RUN),
    ("policy", "explain", RUN),
    ("list", "--json"),
    ("inbox", "--json"),
    ("doctor",),
    ("server", "--status", "--json"),
)


def test_every_adapter_was_used_and_got_its_secret(suite: Suite) -> None:
    """Otherwise finding no secret would prove nothing."""
    assert suite.ran["default"].code == 0, suite.ran["default"].err
    received = "\n".join((*suite.received_texts, *suite.chat.headers))
    sent = [*planted(CREDENTIALS), "TEAM_PASSWORD"]
    unsent = {"ORGA_NOTIFY_SECRET", "OTEL_EXPORTER_OTLP_HEADERS", "POSTGRES_PASSWORD", "TEMPORAL_API_KEY"}
    assert [name for name in sent if a_secret(name) not in received] == [name for name in sent if name in unsent]
    assert "webhook-signature" in received.lower()
    assert [suite.ran[provider].code for provider in REFUSED] == [6] * len(REFUSED)
    assert all("401" in suite.ran[provider].err for provider in REFUSED)


def test_no_secret_is_in_the_database_or_in_a_file_of_a_command(suite: Suite) -> None:
    """The scan finds the text that a tool has read, so it would find a secret."""
    files = [path for path in suite.home.rglob("*") if path.is_file()]
    assert any(CANARY.encode() in path.read_bytes() for path in files), "the scan does not see what tools return"
    assert marked_files(suite.home, suite.orga.folder) == {}


def test_the_signing_key_is_in_no_other_file_and_in_no_output(suite: Suite) -> None:
    key_file = Path(suite.orga.env["ORGA_SIGNING_KEY_FILE"])
    _, private, _ = key_file.read_text().split("\n", 2)
    files = [path for folder in (suite.home, suite.orga.folder) for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if private.encode() in path.read_bytes()] == []
    assert [name for name, done in suite.done.items() if private in done.out + done.err] == []


def test_the_output_of_commands_and_worker_is_searched(suite: Suite) -> None:
    """Each `Done` searches its own output when it is made."""
    assert all(done.out + done.err for done in (*suite.done.values(), *suite.ran.values()))
    with pytest.raises(AssertionError, match=MARK):
        Done(0, "", f'{{"token": "{a_secret("GITHUB_TOKEN")}"}}')


def test_no_secret_was_sent_to_a_model_or_a_collector(suite: Suite) -> None:
    bodies = [json.dumps(body, ensure_ascii=False).encode() for body in suite.chat.requests]
    assert any(CANARY.encode() in body for body in bodies)
    assert suite.collector.spans()
    exported = [body for _, body in suite.collector.bodies]
    assert [marks for body in (*bodies, *exported) if (marks := around_marks(body))] == []


async def test_no_secret_is_in_a_history_or_in_visibility(suite: Suite) -> None:
    status = json.loads(suite.done["server --status --json"].out)
    client = await Client.connect(status["address"], data_converter=data_converter)
    runs = [run async for run in client.list_workflows("")]
    assert len(runs) == 1 + len(REFUSED)
    hiding: set[str] = set()
    for run in runs:
        handle = client.get_workflow_handle(run.id, run_id=run.run_id)
        assert around_marks((await handle.describe()).raw_description.SerializeToString()) == []
        for name, event in named((await handle.fetch_history()).events):
            content = event.SerializeToString()
            assert around_marks(content) == []
            hiding |= {name} if REDACTED.encode() in content else set()
    assert hiding >= {*NO_ARGUMENTS} - {FORBIDDEN, "s_progress"} | {"read_issue", "web_header", "gate", "reason"}


def named(events: Iterable[HistoryEvent]) -> Iterator[tuple[str, HistoryEvent]]:
    """Yield each event with the type of the activity that it ends."""
    types: dict[int, str] = {}
    for event in events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            types[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
        ended = (event.activity_task_completed_event_attributes, event.activity_task_failed_event_attributes)
        yield next((types[of.scheduled_event_id] for of in ended if of.scheduled_event_id), ""), event


@pytest.mark.parametrize("name", CREDENTIALS)
def test_the_scan_finds_each_planted_secret(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(f'{{"{name}": "{a_secret(name)}"}}')
    assert len(marked_files(tmp_path)) == 1
