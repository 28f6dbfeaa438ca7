"""`orga models`: the models that this configuration can use, and a real request to one of them."""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from orga.activities.ports import ModelError, ModelRequest
from orga.activities.text.secrets import KnownSecrets
from orga.client.cli.commands import DefaultCommandGroup
from orga.client.cli.exit_codes import ExitCode, UsageError, usage_errors
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import hanging_lines, terminal_line, write_json, write_note, write_result
from orga.client.config.file import load_config, read_config
from orga.client.config.known_input import RequestedNames, models_of
from orga.client.config.listed import ModelFacts, ModelRow, checked_rows, model_facts, model_rows
from orga.client.config.sections import OrgaConfig
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.models.endpoints import EndpointSettings, known_provider
from orga.workflows.types.models.providers import CODE, PROVIDERS, model_name_problem
from orga.workflows.types.models.tiers import tier_in_model_name
from orga.workflows.types.text import known_names_hint

if TYPE_CHECKING:
    from orga.activities.adapters.models.registry import ModelRegistry


class _ModelsGroup(DefaultCommandGroup):
    default = "list"


app = typer.Typer(
    cls=_ModelsGroup,
    epilog="`list` may be left out: orga models, orga models ollama, orga models --check. The guide is docs/models.md.",
    rich_markup_mode="rich",
)


@app.command("list")
async def list_models(
    provider: Annotated[
        str | None, typer.Argument(metavar="PROVIDER", help="Only the models of this provider.", show_default=False)
    ] = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Check whether each provider answers and accepts the key.")
    ] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show the models that this configuration names, then one of each other provider, with the variable of its key.

    A line shows each model's price, the tokens of its context, and its levels of `effort`. Nothing is generated and
    nothing costs money, not even with --check. Exit code 6 means that a model of the configuration cannot be used.

    Example: orga models

    Example: orga models anthropic --json
    """
    # --check sends keys to addresses of the configuration, so it must be trusted
    settings = load_config(config) if check else read_config(config).config
    known = (*PROVIDERS, *settings.models.own_endpoints)
    if provider is not None and provider not in known:
        raise UsageError(f"there is no provider {provider!r}; {known_names_hint(provider, known)}")
    rows = [row for row in model_rows(settings, os.environ) if provider in {None, row.model.partition(":")[0]}]
    if check:
        rows = await checked_rows(rows, settings, os.environ)
    endpoints = settings.models.own_endpoints
    facts = [
        None if model_name_problem(row.model, endpoints) else model_facts(row.model, settings, os.environ)
        for row in rows
    ]
    if json:
        pairs = zip(rows, facts, strict=True)
        write_json([asdict(row) | (asdict(row_facts) if row_facts else {}) for row, row_facts in pairs])
    else:
        width = max((len(terminal_line(row.model)) for row in rows), default=0)
        for row, row_facts in zip(rows, facts, strict=True):
            write_result(*_row_lines(row, row_facts, width))
        write_note(
            'for one run: orga run --model NAME "..."; for all: [models] default in orga.toml, or ORGA_MODELS__DEFAULT',
            "orga models try NAME makes one real request",
        )
    return ExitCode.FAILED if any(row.problem and row.named_by for row in rows) else 0


def _row_lines(row: ModelRow, facts: ModelFacts | None, width: int) -> list[str]:
    mark = "✓"
    if row.problem:
        mark = "✗" if row.named_by else "-"
    detail = "; ".join(filter(None, (row.named_by, terminal_line(row.problem, 300))))
    lines = [f"{mark} {terminal_line(row.model):<{width}}  {detail}".rstrip()]
    lines += [f"    {_facts_text(facts)}"] if facts else []
    return lines + ([f"    ! {row.warning}"] if row.warning else [])


def _facts_text(facts: ModelFacts) -> str:
    window = f"context {facts.context_window:,}" if facts.context_window else ""
    other = ", or thinking_tokens" if facts.takes_thinking_tokens else ""
    thinking = f"effort {', '.join(facts.efforts)}{other}" if facts.efforts else ""
    tools = {True: "tools", False: "no tools", None: "tools if the model has them"}[facts.calls_tools]
    return "; ".join(filter(None, (_price_text(facts), window, thinking, tools, _key_text(facts))))


def _price_text(facts: ModelFacts) -> str:
    if facts.input_price is None or facts.output_price is None:
        is_local = facts.provider in PROVIDERS and not PROVIDERS[facts.provider].is_remote
        return "free" if is_local else "price unknown"
    return f"USD {facts.input_price:g} in, {facts.output_price:g} out for a million tokens"


def _key_text(facts: ModelFacts) -> str:
    if facts.is_key_set:
        return f"{facts.key} is set"
    if facts.is_key_needed:
        return f"needs {facts.key}"
    return f"{facts.key} is optional" if facts.key else "no key"


TRY_TOOL = "read_file"

TRY_TASK = "Read the file README.md with the tool. Call the tool at once, and write nothing else."

TRY_OUTPUT_TOKENS = 4_096
"""Tokens of the reply. Thinking counts too."""


@dataclass(frozen=True)
class TriedModel:
    """The outcome of a request to one model."""

    model: str
    called: tuple[str, ...] = ()
    """The tools that the model called. None of them was run."""
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    thinking_tokens: int = 0
    """Part of `output_tokens`."""
    cost_usd: float | None = None
    """None if the price is not known."""
    problem: str = ""
    """Why the model does not work, or "" if it does."""
    remedy: str = ""
    warning: str = ""
    """A problem of a model that works, with the remedy."""


@app.command("try")
async def try_model(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="provider:model, or tier:NAME for each of its models.", show_default=False),
    ],
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Ask a model once for a tool call, as a run would ask it. Show the time, the tokens and the cost.

    The tool is not run, and no Temporal server is needed. You pay for one short request. Exit code 1 means that the
    model did not answer, or answered without calling the tool. The output then shows the remedy.

    Example: orga models try offline:extractive
    """
    settings = load_config(config)
    models = _named_models(name, settings)
    from orga.activities.adapters.models.registry import ModelRegistry

    registry = ModelRegistry(
        os.environ, settings.models.base_urls, prices=settings.models.prices, endpoints=settings.models.endpoints
    )
    variables = [variable for endpoint in settings.models.endpoints.values() for variable in endpoint.secret_variables]
    secrets = KnownSecrets.from_environment(os.environ, variables)
    outcomes: list[TriedModel] = []
    try:
        for model in models:
            tried = await _try_model(registry, model, secrets, settings.models.endpoints)
            outcomes.append(tried)
            if not json:
                write_result(*_tried_lines(tried))
    finally:
        await registry.close()
    if json:
        write_json([asdict(tried) for tried in outcomes])
    return ExitCode.FAULTY if any(tried.problem for tried in outcomes) else ExitCode.COMPLETED


def _named_models(name: str, settings: OrgaConfig) -> tuple[str, ...]:
    tier = tier_in_model_name(name)
    if tier is None:
        if problem := model_name_problem(name, settings.models.own_endpoints):
            raise UsageError(problem)
        if name.strip().startswith(f"{CODE}:"):
            raise UsageError(f"{name.strip()} exists only in the worker whose code defines it; try it with orga run")
        return (name.strip(),)
    with usage_errors():
        return models_of(RequestedNames("default", name), AgentConfig(), settings, os.environ)


async def _try_model(
    registry: "ModelRegistry", model: str, secrets: KnownSecrets, endpoints: Mapping[str, EndpointSettings]
) -> TriedModel:
    from orga.activities.adapters.models.registry import ModelNotConfigured
    from orga.activities.adapters.tools.catalog import builtin_specs

    began = time.monotonic()
    try:
        provider, name = registry.resolve(model)
        request = ModelRequest(
            model=name,
            system=("You work with tools.",),
            messages=(Message.of("user", TRY_TASK),),
            tools=(builtin_specs()[TRY_TOOL],),
            max_output_tokens=TRY_OUTPUT_TOKENS,
        )
        reply = await provider.complete(request, lambda text: None)
    except ModelNotConfigured as error:
        problem, _, remedy = str(error).partition(": ")
        return TriedModel(model, problem=problem, remedy=remedy or "orga models shows what each provider lacks")
    except ModelError as error:
        remedy = _remedy(error.kind, model, endpoints)
        tried = TriedModel(model, problem=f"{error.kind}: {secrets.redact(str(error))}", remedy=remedy)
    else:
        tried = _outcome_of_reply(model, reply)
    tried = replace(tried, seconds=round(time.monotonic() - began, 3))
    return replace(tried, warning=await registry.context_shortage(model))  # known only after the model was loaded


def _outcome_of_reply(model: str, reply: Reply) -> TriedModel:
    called = tuple(dict.fromkeys(call.name for call in reply.calls))
    tried = TriedModel(
        model,
        called=called,
        input_tokens=reply.usage.input_tokens,
        output_tokens=reply.usage.output_tokens,
        thinking_tokens=reply.usage.thinking_tokens,
        cost_usd=reply.cost_usd,
    )
    if TRY_TOOL in called:
        return tried
    problem = f"it answered, and did not call the tool: {terminal_line(reply.text) or reply.finish}"
    return replace(tried, problem=problem, remedy=_NO_CALL_REMEDY)


_NO_CALL_REMEDY = "agents need a model that calls tools: name another one, or switch tool calls on at its server"

_REMEDIES = {
    "AuthenticationFailed": "set {key} to a key that is valid for {url}",
    "PermissionDenied": "allow the model for the key in {key}, or name another model",
    "OutOfQuota": "add credit at {provider}, or name another model",
    "ModelNotFound": "correct the name: the provider has no model {name!r}",
    "ConnectionFailed": "start the server, or correct its address: {setting}",
    "Timeout": "try again; if it stays so, name a faster model",
    "RateLimited": "try again later",
    "Overloaded": "try again later",
    "ServerError": "try again later; if it stays so, look at the log of the server",
    "InvalidRequest": "list in [models.endpoints.{provider}] lacks what the model refuses, or name another model",
}
"""Remedies by kind of failure, with the provider's variables or the keys of its endpoint."""

_OLLAMA_REMEDIES = {
    "ConnectionFailed": "start it: ollama serve; or correct its address: {setting}",
    "ModelNotFound": "download it: ollama pull {name}",
}

_EXTRA_REMEDIES = {"AuthenticationFailed": "correct the credentials: docs/models.md lists the variables of {provider}"}


def _remedy(kind: str, model: str, endpoints: Mapping[str, EndpointSettings]) -> str:
    provider, _, name = model.partition(":")
    is_extra = provider in PROVIDERS and PROVIDERS[provider].is_extra
    remedies = _REMEDIES | (_EXTRA_REMEDIES if is_extra else {}) | (_OLLAMA_REMEDIES if provider == "ollama" else {})
    entry, section = known_provider(provider, endpoints), f"[models.endpoints.{provider}]"
    return remedies.get(kind, "name another model").format(
        key=entry.key or f"the variable of {section} key_from",
        url=entry.base_url or f"{section} base_url",
        setting=f"{entry.base_url} or [models] base_urls" if entry.base_url else f"{section} base_url",
        provider=provider,
        name=name,
    )


def _tried_lines(tried: TriedModel) -> list[str]:
    if tried.problem:
        lines = hanging_lines(f"✗ {tried.model}: ", terminal_line(tried.problem, 1_000))
        return [*lines, f"    → {tried.remedy}"]
    thinking = f", {tried.thinking_tokens} of them thinking" if tried.thinking_tokens else ""
    cost = "cost unknown" if tried.cost_usd is None else f"USD {tried.cost_usd:.6f}"
    tokens = f"{tried.input_tokens} tokens in, {tried.output_tokens} out{thinking}"
    first = f"✓ {tried.model}: called {', '.join(tried.called)} after {tried.seconds:.2f} s; {tokens}; {cost}"
    return [first, *([f"    ! {tried.warning}"] if tried.warning else [])]
