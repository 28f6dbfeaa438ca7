"""`orga tools list`: every tool that a worker would have here."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.cli.tools.settings import tools_here

if TYPE_CHECKING:
    from orga.client.workers.tools import WorkerTool


def list_tools(*, json: Json = False, config: ConfigFile = None) -> int:
    """Show the tools of this configuration: effect, source, options. No server of Temporal is needed.

    Example: orga tools list --json
    """
    return completed(_list(config, as_json=json))


async def _list(config: Path | None, *, as_json: bool) -> int:
    async with tools_here(config) as here:
        if as_json:
            json_result([_json(each) for each in here.tools])
        else:
            result(*_lines(here.tools))
    note(f"tools: {len(here.tools)}; an agent has those that its config lists")
    return 0


def _lines(tools: "list[WorkerTool]") -> list[str]:
    width = max((len(each.tool.spec.name) for each in tools), default=0)
    return [
        f"{each.tool.spec.name:<{width}}  {each.tool.spec.effect:<12}  {each.source}{_code(each)}{_told(each)}"
        for each in tools
    ]


def _code(each: "WorkerTool") -> str:
    return f"  {each.digest[:19]}" if each.digest else ""


def _told(each: "WorkerTool") -> str:
    options = _options(each)
    told = [name if value is True else f"{name} {value}" for name, value in options.items()]
    return f"  ({', '.join(told)})" if told else ""


def _options(each: "WorkerTool") -> dict[str, Any]:
    return each.tool.spec.options.model_dump(mode="json", exclude_defaults=True)


def _json(each: "WorkerTool") -> dict[str, Any]:
    spec = each.tool.spec
    return {
        "name": spec.name,
        "description": spec.description,
        "effect": spec.effect,
        "source": each.source,
        **({"digest": each.digest} if each.digest else {}),
        "options": _options(each),
        "parameters": spec.parameters,
    }
