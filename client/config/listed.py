"""Lists the agents, models and tools of a configuration. It runs nothing, and shows no secret."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from orga.client.config.known_input import RequestedNames, model_problem, models_of
from orga.client.config.sections import OrgaConfig
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.models.call_settings import Effort
from orga.workflows.types.models.endpoints import DEFAULT_ENDPOINT, known_provider
from orga.workflows.types.models.providers import DEFAULT_PROVIDERS, PROVIDERS
from orga.workflows.types.models.usage import ModelPrice, Usage
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.tool_calls.tools import ToolSpec

Environment = Mapping[str, str]


def model_text(name: str, agent: AgentConfig, held: OrgaConfig, env: Environment) -> str:
    """Return the model. If the agent names a tier, add the tier's models in order."""
    try:
        models = models_of(RequestedNames(name), agent, held, env)
    except InvalidInput as error:
        return f"{agent.model}: {error}"
    names = ", then ".join(models)
    return f"{agent.model} ({names})" if agent.model and agent.model not in models else names


def agent_json(name: str, agent: AgentConfig, held: OrgaConfig, env: Environment) -> dict[str, Any]:
    model = model_text(name, agent, held, env)
    return {"name": name, "model": model} | agent.model_dump(mode="json", exclude={"model"})


@dataclass(frozen=True)
class ModelRow:
    model: str
    named_by: str
    """The keys that name the model, or "" if the configuration does not use it."""
    problem: str
    """The reason why the model cannot be used, or "" if none is known."""
    warning: str = ""
    """A change to make although the model works, with the remedy. Only a check finds it."""


def model_rows(held: OrgaConfig, env: Environment) -> Iterator[ModelRow]:
    """Yield the models of the configuration, and then those that other keys of the environment would allow."""
    from orga.activities.adapters.models.model_settings import EMBEDDED_MODEL

    named: dict[str, list[str]] = {}
    for place, model in _configured_models(held, env):
        named.setdefault(model, []).append(place)
    for model, places in named.items():
        yield ModelRow(model, ", ".join(places), model_problem(model, env, held.models))
    offered = [f"{each.name}:{env.get(each.model) or each.default_model}" for each in DEFAULT_PROVIDERS]
    offered += [f"{name}:NAME" for name in held.models.own_endpoints]
    offered += [f"{each.name}:NAME" for each in PROVIDERS.values() if each.is_remote and not each.default_model]
    offered += ["local:smollm2", EMBEDDED_MODEL]
    for model in offered:
        if model not in named:
            yield ModelRow(model, "", model_problem(model, env, held.models))


async def checked_rows(rows: Iterable[ModelRow], held: OrgaConfig, env: Environment) -> list[ModelRow]:
    """Return the rows with the reason why a provider does not answer now. Nothing is generated and nothing costs money.

    Keys are sent to the addresses of the configuration, so it must be trusted.
    """
    from orga.activities.adapters.models.registry import ModelNotConfigured, ModelRegistry

    registry = ModelRegistry(env, held.models.base_urls, endpoints=held.models.endpoints)

    async def check(row: ModelRow) -> ModelRow:
        if row.problem or "NAME" in row.model:
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
    """None if the server decides it, model by model."""


def model_facts(model: str, held: OrgaConfig, env: Environment) -> ModelFacts:
    """Return the facts of a model of a known provider or endpoint."""
    from orga.activities.adapters.models.model_settings import provider_kind
    from orga.activities.adapters.models.pricing import listed_window
    from orga.activities.adapters.models.registry import provider_dialect

    name, _, at_provider = model.partition(":")
    provider, price = known_provider(name, held.models.endpoints), model_price(model, held)
    settings = held.models.endpoints.get(name, DEFAULT_ENDPOINT)
    address = held.models.base_urls.get(name) or env.get(provider.base_url) or provider.default_url
    dialect = provider_dialect(provider, at_provider, address, settings) if provider.is_remote else None
    levels = dialect.thinking_levels if dialect and "effort" in dialect.thinking_forms else ()
    may_call = True if provider.default_model or not provider.is_remote else None
    return ModelFacts(
        provider=name,
        key=provider.key,
        is_key_set=bool(provider.key and env.get(provider.key, "").strip()),
        is_key_needed=provider.needs_key,
        input_price=price and price.input,
        output_price=price and price.output,
        context_window=settings.context_window or listed_window(provider_kind(name, settings), at_provider),
        efforts=tuple(each for each in get_args(Effort) if each in levels),
        takes_thinking_tokens=bool(dialect and "tokens" in dialect.thinking_forms),
        calls_tools=False if "tools" in settings.lacks else may_call,
    )


def model_price(model: str, held: OrgaConfig) -> ModelPrice | None:
    """Return the price of a model: that of the configuration, or else the list price. None if it is not known."""
    from orga.activities.adapters.models.model_settings import provider_kind
    from orga.activities.adapters.models.pricing import cost_usd

    provider, _, name = model.partition(":")
    settings = held.models.endpoints.get(provider, DEFAULT_ENDPOINT)
    if (price := held.models.prices.get(model, settings.price)) is not None:
        return price
    provider = provider_kind(provider, settings)
    given, written = (
        cost_usd(provider, name, usage) for usage in (Usage(input_tokens=1_000), Usage(output_tokens=1_000))
    )
    return None if given is None or written is None else ModelPrice(input=given * 1_000, output=written * 1_000)


def _configured_models(held: OrgaConfig, env: Environment) -> Iterator[tuple[str, str]]:
    """Yield each key of the configuration that names a model, with the model."""
    from orga.activities.adapters.models.model_settings import default_model
    from orga.workflows.types.models.tiers import tier_in_model_name

    default = held.models.default or default_model(env)
    if tier_in_model_name(default) is None:
        yield "default", default
    for tier in held.models.tiers.configured_tiers:
        yield from ((f"tier:{tier}", model) for model in held.models.tiers.models(tier))
    for name, agent in held.agents.items():
        found = [("", agent.model), *((f".{asker.key}", asker.model) for asker in agent.askers)]
        yield from ((f"agents.{name}{of}", model) for of, model in found if model and tier_in_model_name(model) is None)


def tool_rows(held: OrgaConfig) -> Iterator[dict[str, Any]]:
    """Yield the tools that are known without running any code: built-in ones, functions, manifests, pinned tools."""
    from orga.activities.adapters.manifests.tool import manifest_spec
    from orga.activities.adapters.tools.activity_tool import ActivityTool
    from orga.activities.adapters.tools.catalog import builtin_specs
    from orga.client.config.manifests import manifest_paths, read_manifests

    for name, spec in builtin_specs().items():
        yield _tool_row(name, "built in", held, spec)
    for path in held.tools.python:
        yield _tool_row(path.rpartition(":")[2], f"function {path}", held)
    for file in read_manifests(manifest_paths(held.tools.manifests))[0]:
        spec = manifest_spec(file.manifest)
        yield _tool_row(spec.name, f"manifest {Path(file.path).name}", held, spec)
    for name, activity in held.tools.activities.items():
        given: dict[str, Any] = {**dict(activity), "output_schema": None}  # a worker checks it, and no row shows it
        tool = ActivityTool(name, **given)
        yield _tool_row(name, tool.source, held, tool.spec)
    for name, later in held.tools.deferred.items():
        yield _tool_row(name, f"deferred, started by {later.start}" if later.start else "deferred", held)
    for server, each in held.mcp.servers.items():
        for name, digest in each.pinned.items():
            yield _tool_row(name, f"MCP server {server}", held) | {"digest": digest}


def _tool_row(name: str, source: str, held: OrgaConfig, spec: ToolSpec | None = None) -> dict[str, Any]:
    options = held.tools.options.get(name)
    return {
        "name": name,
        "source": source,
        "description": spec.description if spec else None,
        "effect": spec.effect if spec else None,
        "parameters": spec.parameters if spec else None,
        "options": options.model_dump(mode="json", exclude_unset=True) if options else {},
        "digest": None,
        "agents": [agent for agent, each in held.agents.items() if name in each.tools],
    }


def mcp_rows(held: OrgaConfig) -> list[dict[str, Any]]:
    """Return the MCP servers. Commands and addresses may hold secrets, so they are only in the file."""
    return [
        {
            "name": name,
            "transport": "stdio" if server.command is not None else "http",
            "pinned": len(server.pinned),
            "trust_annotations": server.trust_annotations,
        }
        for name, server in held.mcp.servers.items()
    ]
