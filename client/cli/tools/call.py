"""`orga tools call`: one call, here and now, through schema and policy."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json, login_name
from orga.client.cli.shown.text import behind, document, json_result, note, on_one_line
from orga.client.cli.tools.listing import Here, tools_here

if TYPE_CHECKING:
    from orga.activities.ports import Tool
    from orga.client.workers.local_call import Asked, Called
    from orga.workflows.types.tool_calls.gate import Verdict


@dataclass(frozen=True)
class _Wish:
    name: str
    arguments: list[str]
    agent: str
    approver: str


def call(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the tool; `orga tools list` shows them.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Its arguments.", show_default=False)
    ] = None,
    *,
    agent: Annotated[str, typer.Option(metavar="NAME", help="Call as this agent.")] = "default",
    approve: Annotated[bool, typer.Option("--approve", help="Say yes yourself, where policy asks a person.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Call a tool once, without a run: its schema, then the configured policy, then the tool itself.

    Exit code 4 when the call is denied, or waits for a yes; 6 when the tool fails.

    Example: orga tools call read_file path=README.md
    """
    approver = login_name() or "operator"
    wish = _Wish(name, arguments or [], agent, approver if approve else "")
    return completed(_call(wish, config, as_json=json))


async def _call(wish: _Wish, config: Path | None, *, as_json: bool) -> int:
    from orga.activities.text.secrets import KnownSecrets
    from orga.client.workers.local_call import carried_out, judged

    async with tools_here(config) as here:
        tool, asked = _asked(wish, here)
        engine_name, engine = _engine(here)
        verdict = await judged(asked, engine, wish.approver) if wish.name in asked.listed else _not_listed(wish)
        note(f"gate ({engine_name}, agent {wish.agent!r}): {_told(verdict, wish)}")
        if verdict.decision != "allow":
            if as_json:
                json_result({"tool": wish.name, "ok": False, "verdict": _verdict(verdict)})
            return ExitCode.USAGE if verdict.decision == "invalid" else ExitCode.DENIED
        arguments = asked.arguments if verdict.arguments is None else verdict.arguments
        called = await carried_out(tool, arguments, KnownSecrets.of_environment(os.environ))
    _show(wish.name, verdict, called, as_json=as_json)
    return 0 if called.ok else ExitCode.FAILED


def _asked(wish: _Wish, here: Here) -> "tuple[Tool, Asked]":
    from orga.activities.adapters.agents.agents import with_default
    from orga.activities.adapters.agents.named_tools import is_meant
    from orga.activities.adapters.mcp.names import is_of_some_server
    from orga.client.workers.local_call import Asked, read_arguments
    from orga.workflows.types.text import there_are

    tools = {each.tool.spec.name: each.tool for each in here.tools}
    agents = with_default(here.config.agents)
    if wish.name not in tools:
        raise UsageError(f"there is no tool {wish.name!r}; {there_are(wish.name, tools)}")
    if wish.agent not in agents:
        raise UsageError(f"--agent: there is no agent {wish.agent!r}; {there_are(wish.agent, agents)}")
    spec = tools[wish.name].spec
    means, is_of_server = agents[wish.agent].tools, partial(is_of_some_server, servers=here.config.mcp.servers)
    listed = tuple(
        name for name, tool in tools.items() if is_meant(name, means, is_of_server, is_own=not tool.spec.digest)
    )
    try:
        return tools[wish.name], Asked(wish.agent, listed, spec, read_arguments(wish.arguments, spec.parameters))
    except ValueError as error:
        raise UsageError(str(error)) from None


def _not_listed(wish: _Wish) -> "Verdict":
    """Return the verdict of any engine: a run of the agent would not be offered the tool."""
    from orga.workflows.types.tool_calls.gate import Verdict

    remedy = f"list it in [agents.{wish.agent}] tools, or name an agent that does with --agent"
    return Verdict(decision="deny", reason=f"agent {wish.agent!r} does not list {wish.name}; {remedy}")


def _engine(here: Here) -> Any:
    from orga.activities.adapters.policy.ladder import engine_name
    from orga.client.cli.policy.options import engine_of
    from orga.client.config.policy_settings import policy_settings

    try:
        settings = policy_settings(here.config.policy, os.environ)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return engine_name(settings), engine_of(settings)


def _told(verdict: "Verdict", wish: _Wish) -> str:
    by = f" by {', '.join(verdict.policies)}" if verdict.policies else ""
    because = f": {on_one_line(verdict.reason, 600)}" if verdict.reason else ""
    match verdict.decision:
        case "allow":
            changed = "" if verdict.arguments is None else f", with other arguments: {verdict.arguments}"
            return f"allowed{by}{f', approved by {wish.approver}' if wish.approver else ''}{changed}"
        case "approval" if verdict.approval:
            who = " or ".join(verdict.approval.approvers) or "anyone"
            return f"held{by}{because}; it needs the yes of {who}: an agent's run waits for it, here --approve says it"
        case decision:
            return f"{'denied' if decision == 'deny' else 'invalid'}{by}{because}"


def _show(name: str, verdict: "Verdict", called: "Called", *, as_json: bool) -> None:
    if as_json:
        outcome = {"content": called.text} if called.ok else {"error": {"kind": called.kind, "text": called.text}}
        json_result({"tool": name, "ok": called.ok, "verdict": _verdict(verdict), **outcome})
    elif called.ok:
        document(called.text)
    else:
        note(*behind(f"{called.kind}: ", called.text))


def _verdict(verdict: "Verdict") -> dict[str, Any]:
    return verdict.model_dump(mode="json", exclude_defaults=True)
