"""Lists the agents, models, tools and MCP servers of a configuration, without running its code or showing a secret."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args

from orga.client.config.known_input import Environment, RequestedNames, model_problem, models_of
from orga.client.config.sections import OrgaConfig
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.models.call_settings import Effort
from orga.workflows.types.models.endpoints import DEFAULT_ENDPOINT, known_provider
from orga.workflows.types.models.providers import DEFAULT_PROVIDERS, PROVIDERS
from orga.workflows.types.models.usage import ModelPrice, Usage
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.tool_calls.tools import ToolSpec


def model_text(name: str, agent: AgentConfig, config: OrgaConfig, env: Environment) -> str:
    """Return the agent's model, or its models in fallback order. A tier is named before its models."""
    try:
        models = models_of(RequestedNames(name), agent, config, env)
    except InvalidInput as error:
        return f"{agent.model}: {error}"
    names = ", then ".join(models)
    return f"{agent.model} ({names})" if agent.model and agent.model not in models else names


def agent_json(name: str, agent: AgentConfig, config: OrgaConfig, env: Environment) -> dict[str, Any]:
    model = model_text(name, agent, config, env)
    return {"name": name, "model": model} | agent.model_dump(mode="json", exclude={"model"})


@dataclass(frozen=True)
class ModelRow:
    model: str
    named_by: str
    """The configuration's keys that name the model, or "" if none does."""
    problem: str
    """The reason why the model cannot be used, or "" if none is known."""
    warning: str = ""
    """A problem of a model that works, with the remedy. Only `checked_rows` finds it."""

    @property
    def is_example(self) -> bool:
        """True if the row is for any model of its provider, so that there is none to ask for."""
        return self.model.endswith(f":{_ANY_MODEL}")


_ANY_MODEL = "NAME"


def model_rows(config: OrgaConfig, env: Environment) -> Iterator[ModelRow]:
    """Yield the models that the configuration uses, then models that it could use, possibly with another API key."""
    from orga.activities.adapters.models.model_settings import EMBEDDED_MODEL

    keys_by_model: dict[str, list[str]] = {}
    for key, model in _configured_models(config, env):
        keys_by_model.setdefault(model, []).append(key)
    for model, keys in keys_by_model.items():
        yield ModelRow(model, ", ".join(keys), model_problem(model, env, config.models))
    others = [f"{provider.name}:{env.get(provider.model) or provider.default_model}" for provider in DEFAULT_PROVIDERS]
    others += [f"{name}:{_ANY_MODEL}" for name in config.models.own_endpoints]
    remote = [provider for provider in PROVIDERS.values() if provider.is_remote]
    others += [f"{provider.name}:{_ANY_MODEL}" for provider in remote if not provider.default_model]
    others += ["local:smollm2", EMBEDDED_MODEL]
    for model in others:
        if model not in keys_by_model:
            yield ModelRow(model, "", model_problem(model, env, config.models))


async def checked_rows(rows: Iterable[ModelRow], config: OrgaConfig, env: Environment) -> list[ModelRow]:
    """Ask each provider, and return the rows with the problems found. Nothing is generated, so nothing costs money.

    Keys are sent to the addresses of the configuration, so it must be trusted.
    """
    from orga.activities.adapters.models.registry import ModelNotConfigured, ModelRegistry

    registry = ModelRegistry(env, config.models.base_urls, endpoints=config.models.endpoints)

    async def check(row: ModelRow) -> ModelRow:
        if row.problem or row.is_example:
            return row
        try:
            if problem := await registry.unreachable_reason(row.model):
                return replace(row, problem=problem)
            return replace(row, warning=await registry.context_shortage(row.model))
        except ModelNotConfigured as error:
            return replace(row, problem=str(error))

    try:
        return await asyncio.gather(*map(check, rows))
    finally:
        await registry.close()


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a model that are known without asking its provider."""

    provider: str
    key: str
    """The variable of the provider's key, or "" if the provider takes none."""
    is_key_set: bool
    is_key_needed: bool
    input_price: float | None
    """US dollars for a million tokens. None if it is not known."""
    output_price: float | None
    context_window: int | None
    """Tokens of input and output together. None if it is not known."""
    efforts: tuple[str, ...]
    """The levels of `effort` that the provider's protocol has. The model may have fewer."""
    takes_thinking_tokens: bool
    calls_tools: bool | None
    """None if it depends on the model, and only the server knows."""


def model_facts(model: str, config: OrgaConfig, env: Environment) -> ModelFacts:
    """Return the facts of a model of a known provider or endpoint."""
    from orga.activities.adapters.models.model_settings import provider_kind
    from orga.activities.adapters.models.pricing import listed_window
    from orga.activities.adapters.models.registry import provider_dialect

    name, _, model_name = model.partition(":")
    provider, price = known_provider(name, config.models.endpoints), model_price(model, config)
    settings = config.models.endpoints.get(name, DEFAULT_ENDPOINT)
    address = config.models.base_urls.get(name) or env.get(provider.base_url) or provider.default_url
    dialect = provider_dialect(provider, model_name, address, settings) if provider.is_remote else None
    levels = dialect.thinking_levels if dialect and "effort" in dialect.thinking_forms else ()
    calls_tools = True if provider.default_model or not provider.is_remote else None
    if "tools" in settings.lacks:
        calls_tools = False
    return ModelFacts(
        provider=name,
        key=provider.key,
        is_key_set=bool(provider.key and env.get(provider.key, "").strip()),
        is_key_needed=provider.needs_key,
        input_price=price and price.input,
        output_price=price and price.output,
        context_window=settings.context_window or listed_window(provider_kind(name, settings), model_name),
        efforts=tuple(effort for effort in get_args(Effort) if effort in levels),
        takes_thinking_tokens=bool(dialect and "tokens" in dialect.thinking_forms),
        calls_tools=calls_tools,
    )


def model_price(model: str, config: OrgaConfig) -> ModelPrice | None:
    """Return the price of a model from the configuration, else its list price, else None."""
    from orga.activities.adapters.models.model_settings import provider_kind
    from orga.activities.adapters.models.pricing import cost_usd

    provider, _, name = model.partition(":")
    settings = config.models.endpoints.get(provider, DEFAULT_ENDPOINT)
    if (price := config.models.prices.get(model, settings.price)) is not None:
        return price
    provider = provider_kind(provider, settings)
    input_cost = cost_usd(provider, name, Usage(input_tokens=1_000))
    output_cost = cost_usd(provider, name, Usage(output_tokens=1_000))
    if input_cost is None or output_cost is None:
        return None
    return ModelPrice(input=input_cost * 1_000, output=output_cost * 1_000)  # US dollars for a million tokens


def _configured_models(config: OrgaConfig, env: Environment) -> Iterator[tuple[str, str]]:
    """Yield each key of the configuration that names a model, with the model."""
    from orga.activities.adapters.models.model_settings import default_model
    from orga.workflows.types.models.tiers import tier_in_model_name

    default = config.models.default or default_model(env)
    if tier_in_model_name(default) is None:
        yield "default", default
    for tier in config.models.tiers.configured_tiers:
        yield from ((f"tier:{tier}", model) for model in config.models.tiers.models(tier))
    for name, agent in config.agents.items():
        models = {f"agents.{name}": agent.model} | {f"agents.{name}.{asker.key}": asker.model for asker in agent.askers}
        for key, model in models.items():
            if model and tier_in_model_name(model) is None:
                yield key, model


def tool_rows(config: OrgaConfig) -> Iterator[dict[str, Any]]:
    """Yield the tools that are known without running their code. Of an MCP server, only the pinned tools are known."""
    from orga.activities.adapters.manifests.tool import manifest_spec
    from orga.activities.adapters.tools.activity_tool import ActivityTool
    from orga.activities.adapters.tools.catalog import builtin_specs
    from orga.client.config.manifests import manifest_paths, read_manifests

    for name, spec in builtin_specs().items():
        yield _tool_row(name, "built in", config, spec)
    for path in config.tools.python:
        yield _tool_row(path.rpartition(":")[2], f"function {path}", config)
    for file in read_manifests(manifest_paths(config.tools.manifests))[0]:
        spec = manifest_spec(file.manifest)
        yield _tool_row(spec.name, f"manifest {file.path.name}", config, spec)
    for name, activity in config.tools.activities.items():
        settings: dict[str, Any] = {**dict(activity), "output_schema": None}  # no row shows it, so it is not checked
        tool = ActivityTool(name, **settings)
        yield _tool_row(name, tool.source, config, tool.spec)
    for name, deferred in config.tools.deferred.items():
        yield _tool_row(name, f"deferred, started by {deferred.start}" if deferred.start else "deferred", config)
    for server_name, server in config.mcp.servers.items():
        for name, digest in server.pinned.items():
            yield _tool_row(name, f"MCP server {server_name}", config, digest=digest)


def _tool_row(
    name: str, source: str, config: OrgaConfig, spec: ToolSpec | None = None, digest: str | None = None
) -> dict[str, Any]:
    from orga.activities.adapters.agents.offered_tools import is_tool_listed

    options = config.tools.options.get(name)
    return {
        "name": name,
        "source": source,
        "description": spec.description if spec else None,
        "effect": spec.effect if spec else None,
        "parameters": spec.parameters if spec else None,
        "options": options.model_dump(mode="json", exclude_unset=True) if options else {},
        "digest": digest,
        "agents": [
            agent_name
            for agent_name, agent in config.agents.items()
            if is_tool_listed(name, agent.tools, config.mcp.is_server_tool, is_own=digest is None)
        ],
    }


def mcp_rows(config: OrgaConfig) -> list[dict[str, Any]]:
    """Return the MCP servers. Commands and addresses may hold secrets, so no row has them."""
    return [
        {
            "name": name,
            "transport": "stdio" if server.command is not None else "http",
            "pinned": len(server.pinned),
            "trust_annotations": server.trust_annotations,
        }
        for name, server in config.mcp.servers.items()
    ]
