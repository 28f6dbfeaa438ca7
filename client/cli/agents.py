"""`orga agents`: the agents of this configuration."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.cli.terminal_text import below, on_one_line
from orga.client.config.file import config_sources
from orga.client.config.known_input import Wanted, models_of, require_agent
from orga.client.config.sections import OrgaConfig
from orga.workflows.types.record import InvalidInput

if TYPE_CHECKING:
    from orga.workflows.types.agents import AgentConfig


def agents(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of them, in full.")] = None,
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show the agents of this configuration: model, tools, whom they may delegate to; nothing is started.

    With a NAME also its instructions and limits. `orga run --agent NAME` starts one.

    Example: orga agents

    Example: orga agents default --json
    """
    from orga.activities.adapters.agents import with_default

    held = config_sources(config, folder=Path.cwd(), env=os.environ).config
    known = with_default(held.agents) if name is None else {name: require_agent(Wanted(name), held)}
    if json:
        json_result([_json(each, agent, held) for each, agent in known.items()])
    elif name is None:
        for each, agent in known.items():
            result(*_lines(each, agent, held))
        note("orga agents NAME shows one in full; [agents.NAME] of orga.toml makes one")
    else:
        result(*_lines(name, known[name], held), *_in_full(known[name]))
    return 0


def _lines(name: str, agent: "AgentConfig", held: OrgaConfig) -> list[str]:
    lines = [f"{on_one_line(name)}  {on_one_line(_model(name, agent, held), 300)}"]
    if agent.description:
        lines.append(f"  {on_one_line(agent.description, 300)}")
    lines.append(f"  tools: {on_one_line(', '.join(agent.tools), 2_000) or 'none'}")
    if agent.delegates:
        lines.append(f"  delegates to: {', '.join(on_one_line(each.agent) for each in agent.delegates)}")
    if agent.reviewers:
        lines.append(f"  reviewed by: {', '.join(map(on_one_line, agent.reviewers))}")
    return lines


def _in_full(agent: "AgentConfig") -> list[str]:
    limits = agent.config.model_dump(mode="json", exclude_none=True)
    told = [f"  {key}: {on_one_line(str(value), 300)}" for key, value in limits.items() if not isinstance(value, dict)]
    return ["  instructions:", *(f"  {line}" for line in below(agent.instructions)), *told]


def _model(name: str, agent: "AgentConfig", held: OrgaConfig) -> str:
    """Return the model, with those that stand in for it where a tier is named."""
    try:
        models = models_of(Wanted(name), agent, held, os.environ)
    except InvalidInput as error:
        return f"{agent.model}: {error}"
    told = ", then ".join(models)
    return f"{agent.model} ({told})" if agent.model and agent.model not in models else told


def _json(name: str, agent: "AgentConfig", held: OrgaConfig) -> dict[str, Any]:
    return {"name": name, "model": _model(name, agent, held)} | agent.model_dump(mode="json", exclude={"model"})
