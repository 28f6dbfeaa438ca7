"""Settings of MCP servers: what the configuration allows, and which environment variables reach a server."""

from typing import Any

import pytest
from pydantic import ValidationError

from orga.activities.adapters.mcp.mcp_settings import own_options
from orga.client.config.sections import OrgaConfig
from orga.own_code import bytecode_folder
from orga.workflows.types.tool_calls.mcp import McpServer
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.mcp.sources import settings_of

ENV = {"PATH": "/bin", "HOME": "/home/me", "TOKEN": "s3cr3t-value", "OPENAI_API_KEY": "sk-other", "EMPTY": ""}


def test_a_server_gets_its_variables_and_a_minimum() -> None:
    (settings,) = settings_of(ENV, s=McpServer(command="x", env_from=("TOKEN",)))
    given = {"PATH": "/bin", "HOME": "/home/me", "TOKEN": "s3cr3t-value"}
    assert settings.environment == {**given, "PYTHONPYCACHEPREFIX": bytecode_folder()}


def test_headers_come_from_the_environment() -> None:
    server = McpServer(url="https://example.org/mcp", headers_from={"X-Key": "TOKEN"}, bearer_from="OPENAI_API_KEY")
    (settings,) = settings_of(ENV, s=server)
    assert settings.headers == {"X-Key": "s3cr3t-value", "Authorization": "Bearer sk-other"}


def test_secrets_are_hidden_in_settings_and_in_texts_of_the_server() -> None:
    (settings,) = settings_of({**ENV, "TOKEN": 'quo"te-value'}, s=McpServer(command="x", env_from=("TOKEN",)))
    assert "quo" not in repr(settings)
    said = settings.secrets.redact('it is quo"te-value, or "quo\\"te-value"')
    assert said == 'it is [redacted], or "[redacted]"'


@pytest.mark.parametrize(
    ("server", "options", "problem"),
    [
        pytest.param(McpServer(command="x", env_from=("GONE",)), {}, "has no GONE", id="a variable that is not set"),
        pytest.param(McpServer(command="x", env_from=("EMPTY",)), {}, "has no EMPTY", id="a variable that is empty"),
        pytest.param(
            McpServer(url="http://example.org", bearer_from="TOKEN"), {}, "https://", id="a secret without TLS"
        ),
        pytest.param(
            McpServer(command="x", options=ToolOptions(execution="local")),
            {},
            "mcp.servers.s.options.execution",
            id="inside the workflow task",
        ),
        pytest.param(
            McpServer(command="x"),
            {"s_a": ToolOptions(isolation="process")},
            "tools.options.s_a.isolation",
            id="an isolated tool",
        ),
    ],
)
def test_invalid_settings_are_refused(server: McpServer, options: dict[str, ToolOptions], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        settings_of(ENV, options, s=server)


def test_a_secret_may_be_sent_to_this_machine_without_tls() -> None:
    (settings,) = settings_of(ENV, s=McpServer(url="http://127.0.0.1:1/mcp", bearer_from="TOKEN"))
    assert settings.headers


def test_options_of_own_tools_are_separated_from_those_of_servers() -> None:
    options = {name: ToolOptions() for name in ("read_file", "read_issue", "time_now")}
    assert set(own_options(options, ["read", "time"], ["read_file"])) == {"read_file"}


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        pytest.param({"s": {}}, "either a command or a url", id="neither command nor url"),
        pytest.param({"s": {"command": "x", "url": "http://a"}}, "either a command or a url", id="both"),
        pytest.param({"s": {"url": "http://a", "env_from": ["A"]}}, "go with a command", id="a url with variables"),
        pytest.param({"s": {"command": "x", "bearer_from": "A"}}, "go with a url", id="a command with headers"),
        pytest.param({"a_b": {"command": "x"}}, "servers.a_b", id="a name with an underscore"),
        pytest.param({"s": {"url": "ftp://a"}}, "url", id="another scheme"),
        pytest.param({"s": {"command": "x", "env": {"TOKEN": "abc"}}}, "env", id="a secret in the file"),
        pytest.param({"s": {"command": "x", "env_from": ["A=b"]}}, "env_from", id="a value in place of a name"),
    ],
)
def test_an_invalid_configuration_is_refused(servers: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        OrgaConfig.model_validate({"mcp": {"servers": servers}}, extra="forbid")
