"""Settings of MCP servers: what the configuration allows, and which environment variables reach a server."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orga.activities.adapters.mcp.mcp_settings import own_options, server_secret_variables, unready_servers
from orga.activities.ports import ToolContext
from orga.client.config.sections import OrgaConfig
from orga.own_code import bytecode_folder
from orga.workflows.types.tool_calls.mcp import McpOAuth, McpServer
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.mcp.sources import settings_of

ENV = {"PATH": "/bin", "HOME": "/home/me", "TOKEN": "s3cr3t-value", "OPENAI_API_KEY": "sk-other", "EMPTY": ""}


def test_a_server_gets_its_variables_and_a_minimum() -> None:
    (settings,) = settings_of(ENV, s=McpServer(command="x", env_from=("TOKEN",)))
    given = {"PATH": "/bin", "HOME": "/home/me", "TOKEN": "s3cr3t-value"}
    assert settings.environment == {**given, "PYTHONPYCACHEPREFIX": bytecode_folder()}


def test_a_server_without_program_or_login_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    (tmp_path / "own").write_text("#!/bin/sh\n")
    (tmp_path / "own").chmod(0o755)
    crm = McpServer(url="https://crm.example.org/mcp", oauth=McpOAuth(login=True))
    settings = settings_of(
        {"PATH": "/bin"},
        shell=McpServer(command="sh"),
        gone=McpServer(command="no-such-program"),
        own=McpServer(command="./own", cwd=tmp_path),
        elsewhere=McpServer(command="./own"),
        open=McpServer(url="https://example.org/mcp"),
        crm=crm,
    )

    assert [(each.place, each.remedy) for each in unready_servers(settings)] == [
        ("mcp.servers.gone", "install it, or correct mcp.servers.gone.command"),
        ("mcp.servers.elsewhere", "install it, or correct mcp.servers.elsewhere.command"),
        ("mcp.servers.crm", "orga tools login crm"),
    ]
    login = settings[-1].login_file
    login.parent.mkdir(parents=True)
    login.touch()
    assert not list(unready_servers(settings[-1:]))


def test_headers_come_from_the_environment() -> None:
    server = McpServer(url="https://example.org/mcp", headers_from={"X-Key": "TOKEN"}, bearer_from="OPENAI_API_KEY")
    (settings,) = settings_of(ENV, s=server)
    assert settings.headers == {"X-Key": "s3cr3t-value", "Authorization": "Bearer sk-other"}


def test_secrets_are_hidden_in_settings_and_in_texts_of_the_server() -> None:
    (settings,) = settings_of({**ENV, "TOKEN": 'quo"te-value'}, s=McpServer(command="x", env_from=("TOKEN",)))
    assert "quo" not in repr(settings)
    redacted = settings.secrets.redact('it is quo"te-value, or "quo\\"te-value"')
    assert redacted == 'it is [redacted], or "[redacted]"'


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


def secrets_file(folder: Path, **entries: object) -> dict[str, str]:
    """Return the environment with a file of secrets by caller."""
    (folder / "secrets.json").write_text(json.dumps(entries))
    return {**ENV, "TABLE": str(folder / "secrets.json")}


def test_a_call_has_the_secrets_of_its_caller_and_the_worker_its_own(tmp_path: Path) -> None:
    env = secrets_file(tmp_path, **{"acme": "acme-secret", "ada": "ada-secret", "*": "own-secret"})
    (settings,) = settings_of(
        env,
        s=McpServer(
            url="https://example.org/mcp",
            headers_from={"X-Key": "TOKEN", "X-Tenant": "TABLE[tenant]"},
            bearer_from="TABLE[trusted_context.person.id]",
        ),
    )
    context = ToolContext("c", "k", tenant="acme", trusted_context={"person": {"id": "ada"}})
    called = settings.for_caller(settings.caller_secrets(context))
    assert settings.headers == {
        "X-Key": "s3cr3t-value",
        "X-Tenant": "own-secret",
        "Authorization": "Bearer own-secret",
    }
    assert called.headers == {
        "X-Key": "s3cr3t-value",
        "X-Tenant": "acme-secret",
        "Authorization": "Bearer ada-secret",
    }
    assert called.secrets.redact("s3cr3t-value acme-secret ada-secret own-secret") == " ".join(["[redacted]"] * 4)
    assert not [each for each in ("acme", "ada-", "own-") if each in repr(called)]


@pytest.mark.parametrize(
    ("entries", "url", "reference", "problem"),
    [
        pytest.param({}, "https://h/", "GONE[tenant]", "bearer_from: the environment has no GONE", id="no variable"),
        pytest.param(
            {}, "https://h/", "TOKEN[tenant]", "bearer_from: TOKEN: has to be the absolute path", id="no path"
        ),
        pytest.param({}, "http://h/", "TABLE[tenant]", "https://", id="a secret without TLS"),
        pytest.param(
            {"*": "a\nb"}, "https://h/", "TABLE[tenant]", "printable ASCII", id="two lines of the worker's own"
        ),
    ],
)
def test_invalid_secrets_by_caller_are_refused(
    tmp_path: Path, entries: dict[str, object], url: str, reference: str, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        settings_of(secrets_file(tmp_path, **entries), s=McpServer(url=url, bearer_from=reference))


@pytest.mark.parametrize("reference", ["T[user]", "T[]", "T[tenant", "T[tenant].x", "T[trusted_context]", "[tenant]"])
def test_only_facts_of_the_starter_select_a_secret(reference: str) -> None:
    with pytest.raises(ValidationError):
        McpServer(url="https://h/", bearer_from=reference)


def a_client(**fields: Any) -> McpServer:
    oauth: dict[str, Any] = {
        "issuer": "https://auth.example.org",
        "client_id": "orga",
        "secret_from": "TOKEN",
        **fields,
    }
    return McpServer(url="https://h/", oauth=McpOAuth(**oauth))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param({"secret_from": "GONE"}, "oauth.secret_from: the environment has no GONE", id="no secret"),
        pytest.param({"issuer": "http://auth.example.org"}, "oauth.issuer: has to begin with https", id="no TLS"),
        pytest.param(
            {"secret_from": None, "key_from": "TOKEN"}, "oauth.key_from: is no private key in PEM", id="no key"
        ),
    ],
)
def test_an_unusable_client_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as raised:
        settings_of(ENV, s=a_client(**fields))
    assert ENV["TOKEN"] not in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"oauth": {"key_from": "K"}}, "either secret_from or key_from"),
        ({"oauth": {"secret_from": None}}, "either secret_from or key_from"),
        ({"oauth": {"issuer": "auth.example.org"}}, "oauth.issuer"),
        ({"oauth": {"issuer": None}}, "need issuer and client_id"),
        ({"oauth": {"client_id": None}}, "need issuer and client_id"),
        ({"oauth": {"scope": "read"}}, "scope goes with login"),
        ({"oauth": {"login": True, "secret_from": None, "key_from": "K"}}, "remove key_from"),
        ({"oauth": {"login": True, "issuer": None}}, "secret_from needs issuer and client_id"),
        ({"oauth": {"login": True, "client_id": None}}, "secret_from needs issuer and client_id"),
        ({"oauth": {"login": True, "secret_from": None, "scope": "a  b"}}, "oauth.scope"),
        ({"bearer_from": "TOKEN"}, "oauth sets Authorization itself"),
        ({"headers_from": {"authorization": "TOKEN"}}, "oauth sets Authorization itself"),
        ({"url": None, "command": "x"}, "oauth go with a url"),
    ],
)
def test_a_client_that_contradicts_its_server_is_refused(fields: dict[str, Any], problem: str) -> None:
    given = a_client().model_dump(exclude_unset=True)
    with pytest.raises(ValidationError, match=problem):
        McpServer.model_validate({**given, **fields, "oauth": {**given["oauth"], **fields.get("oauth", {})}})


def test_each_address_of_a_server_has_its_own_login() -> None:
    login = McpOAuth(login=True)
    servers = [McpServer(url=url, oauth=login) for url in ("https://h/a", "https://h/b")]
    files = {settings_of(ENV, s=each)[0].login_file for each in servers}
    assert len(files) == 2
    assert {path.parent.name for path in files} == {"logins"}


def test_the_variable_of_a_client_holds_a_secret() -> None:
    assert server_secret_variables({"s": a_client(), "t": McpServer(url="https://h/", bearer_from="A[tenant]")}) == {
        "TOKEN"
    }
