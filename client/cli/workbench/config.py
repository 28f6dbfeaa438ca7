"""`orga config show` and `orga agents` show the effective configuration. `orga trust` records which one is trusted."""

import asyncio
import json as json_text
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import urlsplit

import typer

from orga.activities.text.secrets import MIN_GUESSED_CHARS, REDACTED, KnownSecrets, secret_values
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import indented_lines, terminal_line, write_json, write_note, write_result
from orga.client.config.file import FILE_NAME, ConfigInputs, load_config, read_config
from orga.client.config.known_input import RequestedNames, require_agent
from orga.client.config.listed import agent_json, model_text
from orga.client.config.policy import FOLDER
from orga.client.config.problems import unknown_key_remedy
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.check import TrustRequest, Untrusted, revoke_trust, trust_digest, trusted_digests
from orga.client.errors import ConfigError, OrgaError, ServerUnavailable
from orga.workflows.types.models.providers import DEFAULT_PROVIDERS

if TYPE_CHECKING:
    from orga.workflows.types.agents import AgentConfig

app = typer.Typer(
    no_args_is_help=True,
    epilog="orga init writes a first orga.toml. ORGA_SECTION__KEY variables win over the file.",
    rich_markup_mode="rich",
)

VALUE_CHARS = 60


@app.callback()
def _group() -> None:
    """Make `show` a command of a group. Typer would otherwise turn the only command into the group itself."""


@app.command()
async def show(
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="A key or a section, such as models or agents.default.")
    ] = None,
    *,
    changed: Annotated[bool, typer.Option("--changed", help="Only values that are not the default.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """Show each key with its value and source: file and line, variable, run time, or default. Secrets are hidden.

    Nothing is started, and the configuration need not be trusted. Settings at run time are shown if the server runs.

    Example: orga config show models

    Example: orga config show --changed --json
    """
    sources = read_config(config)
    known = await _with_run_time_values(effective_values(sources, os.environ), config)
    shown = [value for value in known if key is None or value.key == key or value.key.startswith(f"{key}.")]
    if not shown:
        sections = sorted({value.key.split(".")[0] for value in known})
        raise UsageError(f"no key {key!r}; {unknown_key_remedy(key or '', sections)}")
    shown = [value for value in shown if not (changed and value.is_default)]
    if json:
        write_json([asdict(value) for value in shown])
        return
    keys = [terminal_line(value.key, 80) for value in shown]
    texts = [terminal_line(json_text.dumps(value.value, ensure_ascii=False), VALUE_CHARS) for value in shown]
    key_width, text_width = (max(map(len, column), default=0) for column in (keys, texts))
    for value, key_text, text in zip(shown, keys, texts, strict=True):
        write_result(f"{key_text:<{key_width}}  {text:<{text_width}}  {value.origin}")
    write_note(f"orga.toml: {sources.path}" if sources.path else "no orga.toml here or above; orga init writes one")


def agents(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show only this agent, in full.")] = None,
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """A NAME also shows its instructions and limits. `orga run --agent NAME` starts an agent.

    Example: orga agents

    Example: orga agents default --json
    """
    from orga.activities.adapters.agents.agents import with_default_agent

    settings = read_config(config).config
    listed = (
        with_default_agent(settings.agents) if name is None else {name: require_agent(RequestedNames(name), settings)}
    )
    if json:
        write_json([agent_json(agent_name, agent, settings, os.environ) for agent_name, agent in listed.items()])
    elif name is None:
        for agent_name, agent in listed.items():
            write_result(*_agent_lines(agent_name, agent, settings))
        write_note("orga agents NAME shows one in full; [agents.NAME] in orga.toml adds one")
    else:
        write_result(*_agent_lines(name, listed[name], settings), *_agent_details(listed[name]))


def _agent_lines(name: str, agent: "AgentConfig", settings: OrgaConfig) -> list[str]:
    lines = [f"{terminal_line(name)}  {terminal_line(model_text(name, agent, settings, os.environ), 300)}"]
    if agent.description:
        lines.append(f"  {terminal_line(agent.description, 300)}")
    lines.append(f"  tools: {terminal_line(', '.join(agent.tools), 2_000) or 'none'}")
    if agent.delegates:
        lines.append(f"  delegates to: {', '.join(terminal_line(delegate.agent) for delegate in agent.delegates)}")
    if agent.reviewers:
        lines.append(f"  reviewed by: {', '.join(map(terminal_line, agent.reviewers))}")
    return lines


def _agent_details(agent: "AgentConfig") -> list[str]:
    limits = agent.config.model_dump(mode="json", exclude_none=True)
    lines = [
        f"  {key}: {terminal_line(str(value), 300)}" for key, value in limits.items() if not isinstance(value, dict)
    ]
    return ["  instructions:", *(f"  {line}" for line in indented_lines(agent.instructions)), *lines]


async def _with_run_time_values(known: "list[EffectiveValue]", config: Path | None) -> "list[EffectiveValue]":
    """Return the values with the settings at run time, which replace those of the file. This needs a running server.

    A server that an untrusted file names is not asked.
    """
    from orga.client.server.embedded import running_server
    from orga.client.server.resolve import names_server

    try:
        settings = load_config(config)
        if not names_server(settings.temporal.address) and running_server() is None:
            return known
        values, origin = await _run_time_values(settings)
    except ConfigError:
        return known
    except (TimeoutError, OrgaError, ServerUnavailable):
        write_note("settings at run time are not shown, because the server does not answer; see `orga doctor`")
        return known
    return [EffectiveValue(each.key, values[each.key], origin) if each.key in values else each for each in known]


async def _run_time_values(config: OrgaConfig) -> tuple[Mapping[str, Any], str]:
    """Return the settings at run time that new runs get, and their origin."""
    from orga.client.config.run_time import RunTimeRules
    from orga.client.connect import connection
    from orga.client.runs.settings import read_settings
    from orga.workflows.decisions.settings import problems_text

    async with asyncio.timeout(SERVER_S), connection(config, write_note) as connected:
        settings = await read_settings(connected.client, connected.task_queue)
    problems = RunTimeRules.for_display(config, os.environ).problems(settings.values)
    if problem := settings.detail or problems_text(problems):
        write_note(f"settings at run time do not count: {terminal_line(problem, 500)}")
        return {}, ""
    return settings.values, f"{RUN_TIME}, version {settings.version}"


SERVER_S = 3.0
"""Seconds to wait for a server, which may not answer."""

RUN_TIME = "run time"

Key = tuple[str, ...]
Environment = Mapping[str, str]

DEFAULT = "default"
EMBEDDED = "the embedded server"


@dataclass(frozen=True)
class EffectiveValue:
    key: str
    value: Any
    """The value in its JSON form."""
    origin: str
    """A variable, `FILE:LINE`, `run time` with its version, or `default` with its reason."""

    @property
    def is_default(self) -> bool:
        """True if neither a variable nor a file sets the key."""
        return self.origin.startswith(DEFAULT)


def effective_values(sources: ConfigInputs, env: Environment) -> list[EffectiveValue]:
    """Return all keys in the order of the sections. Raise ServerUnavailable for unreadable Temporal settings."""
    from orga.activities.adapters.agents.agents import with_default_agent

    config = sources.config.with_agents(with_default_agent(sources.config.agents))
    secrets = KnownSecrets.from_environment(env)
    values: list[EffectiveValue] = []
    for key, configured in _leaves((), config.model_dump(mode="json")):
        value, origin = configured, sources.origin(key)
        if not origin:
            value, origin = _derived_value(key, configured, config, env)
        values.append(EffectiveValue(".".join(key), _masked_value(key, value, secrets), origin))
    return values


def _leaves(key: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    """Yield each key that has a value of its own. An empty table is such a value."""
    if isinstance(value, dict) and (value or not key):
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _leaves((*key, name), inner)
    else:
        yield key, value


def _derived_value(key: Key, value: Any, config: OrgaConfig, env: Environment) -> tuple[Any, str]:
    """Return the value of a key that nobody has set, and its origin."""
    from orga.activities.adapters.models.model_settings import default_model
    from orga.activities.adapters.policy.engines import engine_name
    from orga.client.config.policy import policy_settings
    from orga.client.server.resolve import standard_address

    match key:
        case ("models", "default"):
            model = default_model(env)
            provider = next((each for each in DEFAULT_PROVIDERS if model.startswith(f"{each.name}:")), None)
            return model, f"{DEFAULT}: {(provider and provider.key) or 'no key'} is set"
        case ("temporal", "address"):
            address = standard_address()
            source = "TEMPORAL_ADDRESS" if env.get("TEMPORAL_ADDRESS") else "Temporal's profile"
            return (address, source) if address else (EMBEDDED, DEFAULT)
        case ("tools", "files", "root"):
            return str(Path.cwd()), f"{DEFAULT}: the working folder"
        case ("policy", "engine"):
            engine = engine_name(policy_settings(config.policy, {}))
            why = {"cedar": "policies are there", "opa": "OPA is set up"}.get(engine)
            return engine, f"{DEFAULT}: {why}" if why else DEFAULT
        case ("policy", "dir") if value is not None:
            return value, f"{DEFAULT}: policies are there"
        case _:
            return value, DEFAULT


def _masked_value(key: Key, value: Any, secrets: KnownSecrets) -> Any:
    if isinstance(value, list):
        return [_masked_value(key, element, secrets) for element in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    if key == ("notify", "url") or (key[:2] == ("goals", "deliveries") and key[-1] == "url"):
        parts = urlsplit(value)
        return f"{parts.scheme}://{parts.hostname}/{REDACTED}"
    own_secrets = KnownSecrets.from_values(secret_values({"": value}), MIN_GUESSED_CHARS // 2)
    return secrets.redact(own_secrets.redact(value))


def trust(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", help="A configuration or its folder. Default: the nearest one here or above."),
    ] = None,
    *,
    list_: Annotated[bool, typer.Option("--list", help="Show the trusted configurations.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Do not trust it any more.")] = False,
    json: Json = False,
) -> None:
    """The command shows the settings that need trust. After a change of the file, or of code that it names, you are
    asked again.

    Example: orga trust
    """
    if list_:
        digests = trusted_digests()
        if json:
            write_json(digests)
            return
        for trusted, digest in digests.items():
            write_result(f"{trusted}  {digest}")
        return
    if revoke:
        file = _config_path(path) or _find_config(None).path
        was_trusted = revoke_trust(Path.cwd() / file)
        if json:
            write_json({"path": str(file), "trusted": False, "was_trusted": was_trusted})
        else:
            write_result(f"{file} is not trusted {'any more' if was_trusted else 'anyway'}")
        return
    request = _find_config(path)
    risks = [str(risk) for risk in request.risks]
    write_note(*(f"  {risk}" for risk in risks))
    if risks:
        trust_digest(request.path, request.digest)
    if json:
        write_json({"path": str(request.path), "trusted": bool(risks), "asks": risks})
    else:
        write_result(f"trusted as it is now: {request.path}" if risks else f"{request.path} needs no trust")


def ask_for_trust(error: Untrusted) -> bool:
    """Ask the person at the terminal whether to trust the configuration. Return False without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    write_note(*str(error).splitlines()[:-1])
    if not typer.confirm("Trust it as it is now?", default=False, err=True):
        return False
    trust_digest(error.request.path, error.request.digest)
    return True


def _find_config(path: Path | None) -> TrustRequest:
    file, folder = _config_path(path), Path.cwd()
    if file is not None and file.name == FOLDER and file.is_dir():
        file, folder = None, folder / file.parent
    if file is not None and not file.is_file():
        raise UsageError(f"{file}: is not a file. Name a configuration, or the folder of an orga.toml")
    request = read_config(file, folder=folder).trust_request()
    if request is None:
        raise UsageError("there is no orga.toml here or above, and no policies that need trust. Name a file")
    return request


def _config_path(path: Path | None) -> Path | None:
    """Return the path to trust: for a folder its orga.toml, but for a policy folder without an orga.toml the folder."""
    if path is None or not path.is_dir() or (path.name == FOLDER and not (path / FILE_NAME).exists()):
        return path
    return path / FILE_NAME
