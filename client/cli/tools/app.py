"""The `orga tools` commands. `call` is here: it calls a tool once without a run, if its schema and policy allow it."""

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple, cast
from uuid import uuid4

import typer

from orga.activities.ports import PolicyEngine, Tool, ToolContext, ToolError
from orga.activities.text.sanitize import sanitized_text
from orga.activities.text.secrets import KnownSecrets
from orga.client.cli.exit_codes import ExitCode, UsageError, usage_errors
from orga.client.cli.options import ConfigFile, Json, login_name
from orga.client.cli.shown.text import hanging_lines, terminal_line, write_document, write_json, write_note
from orga.client.cli.tools import listing, login, manifests
from orga.client.cli.tools.listing import LocalTools, open_local_tools
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.text import clean_text, clip, known_names_hint
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict

MAX_ERROR_BYTES = 4_000


class _CallOutcome(NamedTuple):
    ok: bool
    text: str
    """The output, or the error."""
    kind: str = ""
    """The kind of the error."""


async def call(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool. `orga tools list` shows all.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="The arguments of the call.", show_default=False)
    ] = None,
    *,
    agent: Annotated[str, typer.Option(metavar="NAME", help="Call as this agent.")] = "default",
    approve: Annotated[
        bool, typer.Option("--approve", help="Approve the call yourself if policy requires an approval.")
    ] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Call a tool once, without a run. Its schema and the configured policy check the call first.

    Exit code 4 means that the call is denied or needs an approval; 6 means that the tool failed.

    Example: orga tools call read_file path=README.md
    """
    approver = (login_name() or "operator") if approve else ""
    async with open_local_tools(config) as local:
        tool, listed = _tool_and_listed(name, agent, local)
        spec = tool.spec
        with usage_errors():
            values = _parse_arguments(arguments or (), spec.parameters)
        engine_name, engine = _build_engine(local)
        if name in listed:
            proposed = ToolCall(call_id="local", name=name, arguments=values)
            request = GateRequest(agent=agent, iteration=1, calls=(proposed,), specs=(spec,), offered=listed)
            verdict, approver = await _judge(request, engine, approver)
        else:  # the policy is not asked, because the tool would not be offered in a run of this agent
            remedy = f"list it in [agents.{agent}] tools, or name an agent that does with --agent"
            verdict = Verdict(decision="deny", reason=f"agent {agent!r} does not list {name}; {remedy}")
        write_note(f"gate ({engine_name}, agent {agent!r}): {_verdict_text(verdict, approver)}")
        shown = {"tool": name, "ok": False, "verdict": verdict.model_dump(mode="json", exclude_defaults=True)}
        if verdict.decision != "allow":
            if json:
                write_json(shown)
            return ExitCode.USAGE if verdict.decision == "invalid" else ExitCode.DENIED
        outcome = await _call_once(tool, values if verdict.arguments is None else verdict.arguments)
    if json:
        content = {"content": outcome.text} if outcome.ok else {"error": {"kind": outcome.kind, "text": outcome.text}}
        write_json(shown | {"ok": outcome.ok} | content)
    elif outcome.ok:
        write_document(outcome.text)
    else:
        write_note(*hanging_lines(f"{outcome.kind}: ", outcome.text))
    return ExitCode.COMPLETED if outcome.ok else ExitCode.FAILED


def _tool_and_listed(name: str, agent: str, local: LocalTools) -> tuple[Tool, tuple[str, ...]]:
    """Return the tool, and the names of all tools that the agent's configuration lists."""
    from orga.activities.adapters.agents.agents import with_default_agent
    from orga.activities.adapters.agents.offered_tools import is_own_tool, is_tool_listed

    tools = {each.tool.spec.name: each.tool for each in local.tools}
    agents = with_default_agent(local.config.agents)
    if name not in tools:
        raise UsageError(f"there is no tool {name!r}; {known_names_hint(name, tools)}")
    if agent not in agents:
        raise UsageError(f"--agent: there is no agent {agent!r}; {known_names_hint(agent, agents)}")
    patterns, is_of_server = agents[agent].tools, local.config.mcp.is_server_tool
    listed = tuple(
        tool_name
        for tool_name, tool in tools.items()
        if is_tool_listed(tool_name, patterns, is_of_server, is_own=is_own_tool(tool.spec))
    )
    return tools[name], listed


def _build_engine(local: LocalTools) -> tuple[str, PolicyEngine]:
    from orga.activities.adapters.policy.engines import engine_name
    from orga.client.cli.policy.explain import build_policy_engine
    from orga.client.config.policy import policy_settings

    with usage_errors():
        settings = policy_settings(local.config.policy, os.environ)
    return engine_name(settings), build_policy_engine(settings)


def _verdict_text(verdict: Verdict, approver: str) -> str:
    """Return the verdict as a line. `approver` is the person whose approval it takes into account, or "" if none."""
    by = f" by {', '.join(verdict.policies)}" if verdict.policies else ""
    because = f": {terminal_line(verdict.reason, 600)}" if verdict.reason else ""
    match verdict.decision:
        case "allow":
            approved = f", approved by {approver}" if approver else ""
            changed = "" if verdict.arguments is None else f", with other arguments: {verdict.arguments}"
            return f"allowed{by}{approved}{changed}"
        case "approval" if verdict.approval:
            who = " or ".join(verdict.approval.approvers) or "anyone"
            remedy = f"You are {approver}" if approver else "A run would wait for it; here, add --approve"
            return f"held{by}{because}; it needs the approval of {who}. {remedy}"
        case "deny":
            return f"denied{by}{because}"
        case _:
            return f"invalid{by}{because}"


def _parse_arguments(pairs: Iterable[str], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parse `key=value` pairs to values of the schema's types. Raise ValueError for a pair without `=`."""
    properties: Mapping[str, Any] = parameters.get("properties", {})
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"{pair!r} is no argument; write key=value")
        schema = properties.get(name, {})
        if schema.get("type") == "array" and not text.lstrip().startswith("["):
            values.setdefault(name, []).append(_parse_value(text, schema.get("items", {})))
        else:
            values[name] = _parse_value(text, schema)
    return values


def _parse_value(text: str, schema: Mapping[str, Any]) -> Any:
    """Parse a text as the schema's type. If that fails, return the text unchanged, which the schema refuses later."""
    kind = schema.get("type")
    kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
    if "string" in kinds:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


async def _judge(request: GateRequest, engine: PolicyEngine, approver: str) -> tuple[Verdict, str]:
    """Return the gate's verdict, and the person whose approval it takes into account, or "".

    Only if the call needs an approval and `approver` gives it, the call is judged again.
    """
    from orga.activities.adapters.schemas.arguments import find_argument_errors
    from orga.activities.gate.gate import GateActivities

    gate = GateActivities(engine, find_argument_errors)
    (verdict,) = (await gate.gate(request)).verdicts
    if verdict.decision != "approval" or not approver:
        return verdict, ""
    request = request.with_approval(approver, verdict.version)
    if verdict.arguments is not None:  # the approval is for the changed call
        request = request.with_calls((request.calls[0].with_arguments(verdict.arguments),))
    (second,) = (await gate.gate(request)).verdicts
    return second.with_arguments(verdict.arguments if second.arguments is None else second.arguments), approver


async def _call_once(tool: Tool, arguments: dict[str, Any]) -> _CallOutcome:
    """Call the tool, and return its output or its failure as a model would read it."""
    from orga.activities.calls.activity import error_text

    def safe_text(text: str, limit: int) -> str:
        return clip(secrets.redact(sanitized_text(clean_text(text))), limit)

    secrets = KnownSecrets.from_environment(os.environ)
    context = ToolContext(call_id="local", idempotency_key=uuid4().hex, workflow_id="local")
    limit_s = tool.spec.options.timeout_s or LoopConfig().tool_timeout_s
    try:
        async with asyncio.timeout(limit_s):
            output = await tool.call(arguments, context)
    except ToolError as error:
        return _CallOutcome(False, safe_text(str(error), MAX_ERROR_BYTES), error.kind)
    except TimeoutError:
        return _CallOutcome(False, f"{tool.spec.name} took longer than its {limit_s:g} s", "TimeLimit")
    except Exception as error:  # a run would report it as a failed call, too
        return _CallOutcome(False, safe_text(error_text(error), MAX_ERROR_BYTES), type(error).__name__)
    return _CallOutcome(True, safe_text(output.content, tool.spec.max_result_bytes))


app = typer.Typer(
    no_args_is_help=True,
    epilog="A manifest declares one command or one HTTP request. The guide is docs/tool-manifests.md.",
    rich_markup_mode="rich",
)
app.command("list")(listing.list_tools)
app.command("new")(manifests.new)
app.command("import-openapi")(manifests.import_openapi)
app.command("check")(listing.check)
app.command("call")(call)
app.command("pin")(listing.pin)
app.command("login")(login.log_in_to_server)
