"""`orga models`: which models can be asked from here, and what the others lack."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.exit_codes import ExitCode
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.cli.terminal_text import on_one_line
from orga.client.config.file import config_sources, load_config
from orga.client.config.known_models import model_problem
from orga.client.config.sections import OrgaConfig


@dataclass(frozen=True)
class _Row:
    model: str
    named_by: str
    """Who names it; "" for one that is offered only."""
    problem: str
    """Why it cannot be asked; "" where it can, so far as that is known."""


def models(
    check: Annotated[bool, typer.Option("--check", help="Ask each provider whether it answers and takes the key.")] = (
        False
    ),
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show the models that this configuration names, then one of each provider, with what is lacking to ask it.

    Nothing is generated and nothing is paid, with --check neither. Exit code 6 where a model that is named cannot be
    asked.

    Example: orga models --check
    """
    if check:  # the addresses that are asked, keys in hand, are the configuration's
        held = load_config(config).config
        rows = list(_rows(held))
        return completed(_check(rows, held, as_json=json))
    return _shown(list(_rows(config_sources(config, folder=Path.cwd(), env=os.environ).config)), as_json=json)


def _rows(held: OrgaConfig) -> Iterator[_Row]:
    from orga.activities.adapters.models.settings import DEFAULTS, EMBEDDED_MODEL

    base_urls = held.models.base_urls
    named: dict[str, list[str]] = {}
    for place, model in _named(held):
        named.setdefault(model, []).append(place)
    for model, places in named.items():
        yield _Row(model, ", ".join(places), model_problem(model, os.environ, base_urls))
    offered = [f"{provider}:{os.environ.get(variable) or usual}" for provider, variable, usual in DEFAULTS]
    offered += ["ollama:NAME", "openai-compatible:NAME", "local:smollm2", EMBEDDED_MODEL]
    for model in offered:
        if model not in named:
            yield _Row(model, "", model_problem(model, os.environ, base_urls))


def _named(held: OrgaConfig) -> Iterator[tuple[str, str]]:
    """Yield each model that the configuration names, behind the key that does."""
    from orga.activities.adapters.models.settings import default_model
    from orga.workflows.types.tiers import tier_in

    default = held.models.default or default_model(os.environ)
    if tier_in(default) is None:
        yield "default", default
    for tier in held.models.tiers.configured:
        yield from ((f"tier:{tier}", model) for model in held.models.tiers.models(tier))
    for name, agent in held.agents.items():
        found = [("", agent.model), *((f".{asker.key}", asker.model) for asker in agent.askers)]
        yield from ((f"agents.{name}{of}", model) for of, model in found if model and tier_in(model) is None)


async def _check(rows: list[_Row], held: OrgaConfig, *, as_json: bool) -> int:
    from orga.activities.adapters.models.registry import ModelNotConfigured, ModelRegistry

    registry = ModelRegistry(os.environ, held.models.base_urls)
    found: list[_Row] = []
    try:
        for row in rows:
            problem = row.problem
            if not problem and "NAME" not in row.model:
                try:
                    problem = await registry.unreachable(row.model)
                except ModelNotConfigured as error:
                    problem = str(error)
            found.append(_Row(row.model, row.named_by, problem))
    finally:
        await registry.close()
    return _shown(found, as_json=as_json)


def _shown(rows: list[_Row], *, as_json: bool) -> int:
    if as_json:
        json_result([asdict(row) for row in rows])
    else:
        wide = max(len(on_one_line(row.model)) for row in rows)
        for row in rows:
            mark = "✗" if row.problem and row.named_by else "-" if row.problem else "✓"
            told = "; ".join(filter(None, (row.named_by, on_one_line(row.problem, 300))))
            result(f"{mark} {on_one_line(row.model):<{wide}}  {told}".rstrip())
        note('one run: orga run --model NAME "..."; all runs: [models] default of orga.toml, or ORGA_MODELS__DEFAULT')
    return ExitCode.FAILED if any(row.problem and row.named_by for row in rows) else 0
