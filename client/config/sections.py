"""The sections of `orga.toml` as models. `orga.client.config.file` finds and reads the file."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from orga.own_code import removed_folders
from orga.workflows.decisions.goals.templates import template_problem
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.control import ControlTerms
from orga.workflows.types.goals.deliveries import GOAL_ID, MAX_DELIVERIES, DeliveryKind, DeliveryName
from orga.workflows.types.goals.pipelines import Pipeline, PipelineName
from orga.workflows.types.goals.requests import PROMPT_NAMES, PromptName, PromptTemplates
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.models.endpoints import EndpointSettings, endpoint_problem, own_endpoints
from orga.workflows.types.models.providers import (
    HASHING,
    PROVIDERS,
    checked_embedder_name,
    model_form_problem,
    model_name_problem,
)
from orga.workflows.types.models.tiers import GoalTiers, ModelTiers, TierName, tier_in_model_name
from orga.workflows.types.models.usage import ModelPrice
from orga.workflows.types.questions import NotifyEvent
from orga.workflows.types.record import CheckedInput, replace_differing_fields, replace_fields
from orga.workflows.types.text import known_names_hint
from orga.workflows.types.tool_calls.breakers import CircuitOptions
from orga.workflows.types.tool_calls.mcp import McpServer, Variable, is_server_tool
from orga.workflows.types.tool_calls.sandbox import ConfiguredPath, PathOrGlob, Sandbox
from orga.workflows.types.tool_calls.tools import NO_ARGUMENTS, Effect, ToolOptions

Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,190}$")]


class _ChannelKeys(NamedTuple):
    """The required and the optional keys of a kind of channel."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


_CHANNEL_KEYS: Mapping[DeliveryKind, _ChannelKeys] = {
    "file": _ChannelKeys(("path",)),
    "memory": _ChannelKeys(()),
    "webhook": _ChannelKeys(("secret_from",), ("url", "url_from", "allow_http")),
    "telegram": _ChannelKeys(("token_from", "chat_id"), ("url", "allow_http")),
    "discord": _ChannelKeys(("url_from",), ("allow_http",)),
    "slack": _ChannelKeys(("url_from",), ("allow_http",)),
    "email": _ChannelKeys(("host", "sender", "to"), ("port", "security", "username", "password_from")),
}


class DeliveryConfig(CheckedInput):
    """`[goals.deliveries.NAME]`: a channel that sends the answers of goals."""

    kind: DeliveryKind
    """The kind of channel. It decides which keys the channel has."""
    default: bool = False
    """Send an answer to this channel if its goal names no delivery."""
    path: str | None = Field(default=None, min_length=1, max_length=1_000)
    """`file`: the path below the root of the file tools. It must contain `{goal_id}`."""
    url: str | None = Field(default=None, pattern=r"^https?://[^/\s]+", max_length=2_000)
    """`webhook`: the address. `telegram`: the server of the Bot API, by default `https://api.telegram.org`."""
    url_from: Variable | None = None
    """`webhook`, `discord`, `slack`: the variable that holds the address, if the address is itself a secret."""
    allow_http: bool = False
    """Allow answers to be sent unencrypted."""
    secret_from: Variable | None = None
    """`webhook`: the variable that holds the secret that signs answers, in the form of `ORGA_NOTIFY_SECRET`."""
    token_from: Variable | None = None
    """`telegram`: the variable that holds the bot's token."""
    chat_id: int | str | None = None
    """`telegram`: the chat's number, or `@name` of a channel."""
    host: str | None = Field(default=None, pattern=r"^[A-Za-z0-9.:-]{1,253}$")
    """`email`: the mail server."""
    port: int | None = Field(default=None, ge=1, le=65_535)
    """`email`: the server's port. Null: 587 for `starttls`, 465 for `tls`, 25 for `none`."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """`email`: how the connection is encrypted."""
    username: str | None = Field(default=None, min_length=1, max_length=300)
    """`email`: the user who logs in. Requires `password_from`."""
    password_from: Variable | None = None
    """`email`: the variable that holds the password."""
    sender: Address | None = None
    """`email`: the sender's address."""
    to: tuple[Address, ...] = Field(default=(), max_length=50)
    """`email`: the recipients' addresses."""

    @model_validator(mode="after")
    def _check_keys(self) -> "DeliveryConfig":
        keys = _CHANNEL_KEYS[self.kind]
        if missing := [key for key in keys.needed if not getattr(self, key)]:
            raise ValueError(f'kind "{self.kind}" needs {", ".join(missing)}')
        if extra := sorted(self.model_fields_set - {"kind", "default", *keys.needed, *keys.optional}):
            allowed = ", ".join((*keys.needed, *keys.optional))
            raise ValueError(f'{", ".join(extra)}: not of kind "{self.kind}"; it has {allowed}')
        if self.kind == "webhook" and (self.url is None) == (self.url_from is None):
            raise ValueError('kind "webhook" needs either a url or url_from')
        if self.kind == "email" and (self.username is None) != (self.password_from is None):
            raise ValueError("username and password_from go together")
        return self

    @model_validator(mode="after")
    def _check_path(self) -> "DeliveryConfig":
        if self.path is None:
            return self
        other_braces = set("{}") & set(self.path.replace(GOAL_ID, ""))
        if GOAL_ID not in self.path or other_braces:
            raise ValueError(f"path: needs {GOAL_ID} and no other braces, or goals would replace each other's answers")
        if self.path.startswith("/") or ".." in self.path.split("/"):
            raise ValueError("path: has to lie below the root of the file tools, such as answers/{goal_id}.md")
        return self

    @property
    def variables(self) -> set[str]:
        """The variables that hold the channel's secrets."""
        variables = (self.url_from, self.secret_from, self.token_from, self.password_from)
        return {variable for variable in variables if variable}


class PromptsConfig(CheckedInput):
    """`[goals.prompts]`: a template for each goal prompt. An empty template means the default."""

    planning: str = ""
    """Asks for the plan."""
    execution: str = ""
    """Asks for the arguments of a step."""
    evaluation: str = ""
    """Asks for the scores of a step's outcome."""
    decision: str = ""
    """Asks what to do next."""
    summary: str = ""
    """Asks for the final answer."""
    compression: str = ""
    """Asks for a shorter memory."""

    @field_validator("*")
    @classmethod
    def _check_template(cls, text: str, info: ValidationInfo) -> str:
        if not text.strip():
            return ""
        if problem := template_problem(cast("PromptName", info.field_name), text):
            raise ValueError(problem)
        return text

    @property
    def templates(self) -> PromptTemplates | None:
        """The templates that runs record, or None if all are defaults."""
        texts: dict[PromptName, str] = {name: getattr(self, name) for name in PROMPT_NAMES}
        return PromptTemplates.of({name: text for name, text in texts.items() if text})


DSN_VARIABLE = "ORGA_KNOWLEDGE_DSN"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


def _checked_variable(name: object) -> object:
    """Refuse text that is not the name of a variable. The error does not repeat it, because it may hold a password."""
    if isinstance(name, str) and not _VARIABLE.fullmatch(name):
        raise ValueError(
            f'has to name the environment variable that holds the address, as in dsn = "{DSN_VARIABLE}"; the '
            "address itself is a secret and belongs in no file"
        )
    return name


def _checked_embedder(name: object) -> object:
    """Check the embedder's name, but accept any endpoint. `OrgaConfig` checks whether the endpoint is configured."""
    if not isinstance(name, str):
        return name
    endpoint = name.strip().partition(":")[0]
    is_endpoint = endpoint not in PROVIDERS and not model_form_problem(name)
    return checked_embedder_name(name, (endpoint,) if is_endpoint else ())


class KnowledgeConfig(CheckedInput):
    """`[knowledge]`: the store of what agents learn. Only runs that have `knowledge` use it."""

    backend: Literal["sqlite", "postgres"] = "sqlite"
    """`postgres`: one store for the workers of several machines. It needs pgvector in the database, and the extra
    `postgres` on each machine."""
    path: ConfiguredPath | None = None
    """`sqlite`: the file, relative to this configuration. Null: a file for this folder in orga's own state."""
    dsn: Annotated[str, BeforeValidator(_checked_variable)] = DSN_VARIABLE
    """`postgres`: the variable that holds the address, `postgresql://user:password@host/database`."""
    embedder: Annotated[str, BeforeValidator(_checked_embedder), Field(max_length=300)] = HASHING
    """The embedder, which turns texts into vectors: `hashing`, `wordllama` (the extra `embeddings`), `provider:model`,
    such as `openai:text-embedding-3-small`, or `NAME:model` of an endpoint."""


ServerName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,23}$")]
"""No underscore is allowed, because an underscore separates the server's name from the tool's own name."""

ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class TemporalConfig(CheckedInput):
    """`[temporal]`: the server. Without an address, `TEMPORAL_*` or its profile names it, else it is embedded."""

    address: str | None = Field(default=None, min_length=1)
    """`host:port`."""
    namespace: str | None = Field(default=None, min_length=1)
    """The server's namespace. Null: `default`."""
    task_queue: str | None = Field(default=None, min_length=1)
    """The queue on a configured server. Null: `orga`. On the embedded server, each folder has its own instead."""
    roll_over_events: int = Field(default=ControlTerms().roll_over_events, ge=20, le=10_000)
    """Events after which a run continues as new."""

    def with_overrides(self, *, namespace: str | None = None, task_queue: str | None = None) -> Self:
        names = {"namespace": namespace, "task_queue": task_queue}
        return replace_fields(self, {key: name for key, name in names.items() if name})


class ModelsConfig(CheckedInput):
    """`[models]`: the models and their providers. API keys come from the environment only."""

    default: str | None = Field(default=None, max_length=200)
    """`provider:model`, or a tier that has models. Null takes the first provider whose key is set, else
    `offline:extractive`."""
    tiers: ModelTiers = ModelTiers()
    """`light = ["provider:model", ...]`: the models of `tier:light`, in fallback order."""
    tier_settings: dict[TierName, ModelSettings] = {}
    """`heavy = { effort = "high" }`: settings of model calls by tier."""
    base_urls: dict[str, str] = {}
    """URLs by provider: `openai-compatible = "http://localhost:8000/v1"`."""
    endpoints: dict[str, EndpointSettings] = {}
    """Servers by name. A provider's name changes its server's settings. Any other name adds a server of your own, with
    models `NAME:model`."""
    breaker: CircuitOptions = CircuitOptions()
    """The circuit of each provider and endpoint, which all runs of a worker share."""
    prices: dict[str, ModelPrice] = {}
    """Prices by `provider:model`. They override the installed list and the provider's own bill."""
    unpriced: Literal["refuse", "allow"] = "refuse"
    """`refuse` rejects a run with `max_cost_usd` and a model of unknown price. `allow` starts it, and its cost is not
    limited."""

    def with_choice(self, default: str | None, tiers: ModelTiers) -> Self:
        return replace_differing_fields(self, {"default": default, "tiers": tiers})

    @property
    def own_endpoints(self) -> tuple[str, ...]:
        """The names of the endpoints that are no provider's."""
        return own_endpoints(self.endpoints)

    @property
    def embedding_endpoints(self) -> tuple[str, ...]:
        """The names of the own endpoints whose protocol has embeddings."""
        return tuple(name for name in self.own_endpoints if self.endpoints[name].api != "messages")

    @field_validator("base_urls")
    @classmethod
    def _check_providers(cls, urls: dict[str, str]) -> dict[str, str]:
        remote = [provider.name for provider in PROVIDERS.values() if provider.is_remote]
        if unknown := next((name for name in urls if name not in remote), None):
            raise ValueError(
                f"{unknown!r} is no provider with a server; {known_names_hint(unknown, remote)}; a server of your own "
                f"has its address in [models.endpoints.NAME]"
            )
        return urls

    @field_validator("endpoints")
    @classmethod
    def _check_endpoints(cls, endpoints: dict[str, EndpointSettings]) -> dict[str, EndpointSettings]:
        for name, settings in endpoints.items():
            if problem := endpoint_problem(name, settings):
                raise ValueError(problem)
        return endpoints

    @model_validator(mode="after")
    def _check_tiers(self) -> Self:
        for tier in self.tiers.configured_tiers:
            for index, name in enumerate(self.tiers.models(tier)):
                if problem := model_name_problem(name, self.own_endpoints):
                    raise ValueError(f"tiers.{tier}.{index}: {problem}")
        return self

    @model_validator(mode="after")
    def _check_default(self) -> Self:
        tier = tier_in_model_name(self.default) if self.default else None
        if tier is not None and tier not in self.tiers.configured_tiers:
            raise ValueError(
                f"default = {self.default!r} names a tier without models; {_tier_remedy(self.tiers, tier)}"
            )
        return self


def _tier_remedy(tiers: ModelTiers, tier: str) -> str:
    add_models = f"give it some: [models.tiers] {tier} = [...]"
    others = ", ".join(tiers.configured_tiers)
    return f"{add_models}, or name one of {others}" if others else add_models


class FilesConfig(CheckedInput):
    """`[tools.files]`."""

    root: ConfiguredPath | None = None
    """Folder that file tools stay under, relative to this configuration. Null: the worker's working directory."""


class WebConfig(CheckedInput):
    """`[tools.web]`: tools that fetch from the web."""

    allow_hosts: tuple[str, ...] = ()
    """Hosts that may be fetched although their address is private."""


def _checked_https(url: str) -> str:
    parts = urlsplit(url)
    is_https = parts.scheme == "https" and bool(parts.hostname)
    is_local = parts.scheme == "http" and parts.hostname in {"localhost", "127.0.0.1", "::1"}
    if not (is_https or is_local):
        raise ValueError("has to begin with https://, because the token is sent to this address")
    return url


class GitHubConfig(CheckedInput):
    """`[tools.github]`: `read_issue` and `read_pull_request`. The token is `GITHUB_TOKEN` of the environment."""

    base_url: Annotated[str, AfterValidator(_checked_https)] = "https://api.github.com"
    """The API's address. GitHub Enterprise has `https://HOST/api/v3`."""
    repo: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9_.-]{1,100}$")
    """`owner/name`: the repository that a bare `#42` refers to."""


class CommandsConfig(CheckedInput):
    """`[tools.commands]`: the tool `run_command`."""

    allow: tuple[str, ...] = ()
    """Programs that `run_command` may start, by bare name."""
    sandbox: Sandbox = Sandbox()


class ActivityConfig(CheckedInput):
    """`[tools.activities.NAME]`: an activity of another worker, in any language, as a tool."""

    task_queue: str = Field(min_length=1, max_length=200)
    """The queue of the worker that has the activity."""
    activity: str | None = Field(default=None, min_length=1, max_length=200)
    """The activity's type. Null: the tool's name."""
    description: Annotated[str, Field(max_length=4_000)] = ""
    """The description that the model reads."""
    parameters: dict[str, Any] = NO_ARGUMENTS
    """JSON Schema (2020-12) of the arguments, an object. The activity gets them as one object."""
    effect: Effect = "irreversible"
    """The effect of repeating a call: `read_only`, `idempotent` or `irreversible`."""
    heartbeat_timeout_s: float | None = Field(default=None, ge=0.1, le=3_600)
    """Seconds without a heartbeat after which a call counts as lost. Set it only if the activity sends heartbeats. They
    also deliver an abort. Null: only the time limit counts."""
    pass_context: bool = False
    """Give the activity a second argument: an object with `idempotency_key`, `workflow_id`, `call_id`, `agent`, and, if
    the call has them, `tenant`, `trusted_context` and `approver`."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema (2020-12) of the value that the activity returns. Null: any JSON."""


class DeferredConfig(CheckedInput):
    """`[tools.deferred.NAME]`: a tool whose results come later, by `complete_tool_call`."""

    start: ToolName | None = None
    """The tool that starts the work. It gets the arguments and the ids of each call. Null: whoever does the work finds
    the call in the inbox."""
    description: Annotated[str, Field(max_length=4_000)] = ""
    """The description that the model reads. Empty: that of `start`."""
    parameters: dict[str, Any] | None = None
    """JSON Schema (2020-12) of the arguments, an object. Null: those of `start`, or no arguments."""
    effect: Effect | None = None
    """The effect of repeating a call: `read_only`, `idempotent` or `irreversible`. Null: that of `start`, or
    `irreversible`."""
    expires_s: float = Field(default=604_800.0, ge=1, le=31_536_000)
    """Seconds after which a call without a result fails."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema (2020-12) of a result. Null: any JSON."""


class ToolsConfig(CheckedInput):
    """`[tools]`: the tools that agents can be given."""

    python: tuple[Annotated[str, Field(max_length=200)], ...] = ()
    """Functions as `package.module:function`. The module is installed, or lies next to this configuration."""
    manifests: tuple[PathOrGlob, ...] = ()
    """TOML files that declare one tool each, or globs such as `tools/*.toml`, relative to this configuration."""
    files: FilesConfig = FilesConfig()
    web: WebConfig = WebConfig()
    github: GitHubConfig = GitHubConfig()
    commands: CommandsConfig = CommandsConfig()
    activities: dict[ToolName, ActivityConfig] = {}
    """Activities of other workers that are tools, by the name of the tool."""
    deferred: dict[ToolName, DeferredConfig] = {}
    """Tools whose results come later, by name."""
    options: dict[ToolName, ToolOptions] = {}
    """Activity options by tool."""


class OpaConfig(CheckedInput):
    """`[policy.opa]`: a server, or a compiled policy. A server's token is `OPA_TOKEN` of the environment."""

    url: str | None = Field(default=None, pattern=r"^https?://[^/\s]+")
    """The server's URL, without `/v1`."""
    wasm: ConfiguredPath | None = None
    """The file that `opa build -t wasm` wrote, relative to this configuration."""
    path: str = Field(default="orga/decision", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*(/[A-Za-z0-9_-]+)*$")
    """The rule that decides. `orga/decision` is the rule `decision` of the package `orga`."""
    timeout_s: float = Field(default=3.0, gt=0, le=9)
    """Seconds for one decision, including repeated attempts."""


class McpConfig(CheckedInput):
    """`[mcp]`."""

    servers: dict[ServerName, McpServer] = {}
    """Servers by name. The name is the prefix of their tools' names."""

    def is_server_tool(self, tool: str) -> bool:
        """Return True if a tool name or a glob begins with the name of one of the servers."""
        return is_server_tool(tool, self.servers)

    def unpinned_server(self, name: str) -> Self:
        """Return the section with this server alone, without its pinned definitions."""
        return replace_fields(self, {"servers": {name: self.servers[name].without_pins()}})


class PolicyConfig(CheckedInput):
    """`[policy]`: the engine that judges proposals, and the place of its rules."""

    engine: Literal["cedar", "opa", "code", "default", "allow"] | None = None
    """Null: Cedar if there is a `dir`, else OPA if it is configured, else `default`, which allows the tools that the
    agent lists. `allow` allows every call and warns about it. `code` is an engine that an application provides."""
    dir: ConfiguredPath | None = None
    """Folder of `*.cedar` files, relative to this configuration. Null: the folder `policies` next to it, if it has
    Cedar files."""
    surface: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$")
    """Folder in `dir` whose policies hold in addition to the shared ones."""
    opa: OpaConfig = OpaConfig()

    def with_dir(self, folder: Path) -> Self:
        return replace_fields(self, {"dir": folder})

    def with_engine(self, engine: Literal["cedar", "code"]) -> Self:
        return replace_fields(self, {"engine": engine})


class AuditConfig(CheckedInput):
    """`[audit]`: the key that signs exported journals, and the keys that are trusted."""

    signing_key_file: ConfiguredPath | None = None
    """Private key from `orga audit keygen`, relative to this configuration. `ORGA_SIGNING_KEY_FILE` overrides it."""
    trusted_keys: tuple[str, ...] = ()
    """Public keys, `ed25519:…`, that `orga verify` trusts. If there is one, an export must be signed."""


class NotifyConfig(CheckedInput):
    """`[notify]`: a webhook that reports what waits for a person. `ORGA_NOTIFY_SECRET` of the environment signs it."""

    url: str | None = Field(default=None, pattern=r"^https?://[^/\s]+", max_length=2_000)
    """The webhook's address. Null: nothing is sent. Put an address that is itself a secret into `ORGA_NOTIFY__URL`."""
    events: tuple[NotifyEvent, ...] = ("approval", "answer", "escalation", "budget")
    """The events to send: the kinds of question, and `ended`."""
    format: Literal["json", "slack"] = "json"
    """`slack` sends only the text, in the form that incoming webhooks of Slack and Mattermost expect."""
    allow_http: bool = False
    """Allow messages to be sent unencrypted."""
    ui_url: str | None = Field(default=None, pattern=r"^https?://[^/\s]+", max_length=2_000)
    """Address of the Temporal UI, for links in messages. Null: the UI of the embedded server. Without it: no links."""


class GoalsConfig(CheckedInput):
    """`[goals]`: settings for all goals."""

    tiers: GoalTiers = GoalTiers()
    """`plan = "heavy"`: the tier of each goal prompt."""
    deliveries: dict[DeliveryName, DeliveryConfig] = Field(default={}, max_length=MAX_DELIVERIES)
    """The channels that answers can be sent to, by name."""
    prompts: PromptsConfig = PromptsConfig()
    """Templates of the goal prompts."""


class TelemetryConfig(CheckedInput):
    """`[telemetry]`: OpenTelemetry over OTLP/HTTP, off by default."""

    enabled: bool = False
    """Export traces and metrics."""
    endpoint: str = "http://localhost:4318"
    """Base URL of a collector; `/v1/traces` and `/v1/metrics` are added."""
    service_name: str = "orga"
    """Service name in spans and metrics."""
    export_interval_s: float = Field(default=10.0, gt=0, le=3_600)
    """Seconds between two exports of metrics."""


class OrgaConfig(CheckedInput):
    """The whole file."""

    temporal: TemporalConfig = TemporalConfig()
    agents: dict[str, AgentConfig] = {}
    models: ModelsConfig = ModelsConfig()
    tools: ToolsConfig = ToolsConfig()
    mcp: McpConfig = McpConfig()
    policy: PolicyConfig = PolicyConfig()
    audit: AuditConfig = AuditConfig()
    notify: NotifyConfig = NotifyConfig()
    goals: GoalsConfig = GoalsConfig()
    pipelines: dict[PipelineName, Pipeline] = {}
    """Plans by name. A goal may name one of them."""
    knowledge: KnowledgeConfig = KnowledgeConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    _file: Path | None = PrivateAttr(default=None)

    @field_validator("goals")
    @classmethod
    def _check_goal_tiers(cls, goals: GoalsConfig, info: ValidationInfo) -> GoalsConfig:
        models = info.data.get("models")
        if isinstance(models, ModelsConfig) and models.tiers.configured_tiers:
            for prompt, tier in goals.tiers.by_goal_prompt.items():
                if tier not in models.tiers.configured_tiers:
                    key = f"tiers.{prompt.removeprefix('goal_')} = {tier!r}"
                    raise ValueError(f"{key} names a tier without models; {_tier_remedy(models.tiers, tier)}")
        return goals

    @field_validator("knowledge")
    @classmethod
    def _check_embedder(cls, knowledge: KnowledgeConfig, info: ValidationInfo) -> KnowledgeConfig:
        models = info.data.get("models")
        if isinstance(models, ModelsConfig):
            checked_embedder_name(knowledge.embedder, models.embedding_endpoints)
        return knowledge

    @property
    def file(self) -> Path | None:
        """The file that the configuration was read from, or None."""
        return self._file

    def with_temporal(self, temporal: TemporalConfig) -> Self:
        return replace_fields(self, {"temporal": temporal})

    def with_agents(self, agents: dict[str, AgentConfig]) -> Self:
        return replace_fields(self, {"agents": agents})

    def with_models(self, models: ModelsConfig) -> Self:
        return replace_fields(self, {"models": models})

    def with_goals(self, goals: GoalsConfig) -> Self:
        return replace_fields(self, {"goals": goals})

    def with_policy(self, policy: PolicyConfig) -> Self:
        return replace_fields(self, {"policy": policy})

    def with_mcp(self, mcp: McpConfig) -> Self:
        return replace_fields(self, {"mcp": mcp})

    def with_file(self, path: Path | None) -> "OrgaConfig":
        """Return a copy that names this path as the file that it was read from."""
        config = self.model_copy()
        config._file = path
        return config


def tool_folders(config: OrgaConfig) -> list[Path]:
    """Return the folders that tool modules may be in.

    They are the folder of the configuration file, or the working directory if there is no file, and the folders that
    were removed from `sys.path`.
    """
    return [config.file.parent if config.file else Path.cwd(), *removed_folders]
