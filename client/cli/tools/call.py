"""`orga tools call`: call a tool once without a run, through its schema and the policy."""

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast
from uuid import uuid4

import typer

from orga.activities.ports import PolicyEngine, Tool, ToolContext, ToolError
from orga.activities.text.sanitize import sanitized_text
from orga.activities.text.secrets import KnownSecrets
from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, login_name
from orga.client.cli.shown.text import hanging_lines, on_one_line, write_document, write_json, write_note
from orga.client.cli.tools.listing import LocalTools, open_local_tools
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.text import clean_text, clip, known_names_hint
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from orga.workflows.types.tool_calls.tools import ToolSpec

MAX_ERROR_BYTES = 4_000


@dataclass(frozen=True)
class LocalCall:
    agent: str
    listed: tuple[str, ...]
    """The worker's tools that the agent's configuration lists."""
    spec: ToolSpec
    arguments: dict[str, Any]


@dataclass(frozen=True)
class LocalCallResult:
    ok: bool
    text: str
    kind: str = ""


@dataclass(frozen=True)
class _ToolCallRequest:
    name: str
    arguments: list[str]
    agent: str
    approver: str


def call(
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
    approver = login_name() or "operator"
    request = _ToolCallRequest(name, arguments or [], agent, approver if approve else "")
    return run_interruptible(_call(request, config, as_json=json))


async def _call(request: _ToolCallRequest, config: Path | None, *, as_json: bool) -> int:
    async with open_local_tools(config) as here:
        tool, asked = _prepare_call(request, here)
        engine_name, engine = _build_engine(here)
        verdict = (
            await judge_call(asked, engine, request.approver)
            if request.name in asked.listed
            else _unlisted_verdict(request)
        )
        write_note(f"gate ({engine_name}, agent {request.agent!r}): {_verdict_text(verdict, request)}")
        if verdict.decision != "allow":
            if as_json:
                write_json({"tool": request.name, "ok": False, "verdict": _verdict_json(verdict)})
            return ExitCode.USAGE if verdict.decision == "invalid" else ExitCode.DENIED
        arguments = asked.arguments if verdict.arguments is None else verdict.arguments
        called = await call_tool_once(tool, arguments, KnownSecrets.from_environment(os.environ))
    _show_outcome(request.name, verdict, called, as_json=as_json)
    return 0 if called.ok else ExitCode.FAILED


def _prepare_call(request: _ToolCallRequest, here: LocalTools) -> tuple[Tool, LocalCall]:
    from orga.activities.adapters.agents.agents import with_default_agent
    from orga.activities.adapters.agents.named_tools import is_tool_listed
    from orga.activities.adapters.mcp.names import is_server_tool

    tools = {each.tool.spec.name: each.tool for each in here.tools}
    agents = with_default_agent(here.config.agents)
    if request.name not in tools:
        raise UsageError(f"there is no tool {request.name!r}; {known_names_hint(request.name, tools)}")
    if request.agent not in agents:
        raise UsageError(f"--agent: there is no agent {request.agent!r}; {known_names_hint(request.agent, agents)}")
    spec = tools[request.name].spec
    means, is_of_server = agents[request.agent].tools, partial(is_server_tool, servers=here.config.mcp.servers)
    listed = tuple(
        name for name, tool in tools.items() if is_tool_listed(name, means, is_of_server, is_own=not tool.spec.digest)
    )
    try:
        return tools[request.name], LocalCall(
            request.agent, listed, spec, read_arguments(request.arguments, spec.parameters)
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _unlisted_verdict(request: _ToolCallRequest) -> Verdict:
    """Return a denial. The policy is not asked, because a run of the agent would not be offered the tool."""
    remedy = f"list it in [agents.{request.agent}] tools, or name an agent that does with --agent"
    return Verdict(decision="deny", reason=f"agent {request.agent!r} does not list {request.name}; {remedy}")


def _build_engine(here: LocalTools) -> Any:
    from orga.activities.adapters.policy.ladder import engine_name
    from orga.client.cli.policy.explain import build_policy_engine
    from orga.client.config.policy_settings import policy_settings

    try:
        settings = policy_settings(here.config.policy, os.environ)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return engine_name(settings), build_policy_engine(settings)


def _verdict_text(verdict: Verdict, request: _ToolCallRequest) -> str:
    by = f" by {', '.join(verdict.policies)}" if verdict.policies else ""
    because = f": {on_one_line(verdict.reason, 600)}" if verdict.reason else ""
    match verdict.decision:
        case "allow":
            changed = "" if verdict.arguments is None else f", with other arguments: {verdict.arguments}"
            return f"allowed{by}{f', approved by {request.approver}' if request.approver else ''}{changed}"
        case "approval" if verdict.approval:
            who = " or ".join(verdict.approval.approvers) or "anyone"
            return f"held{by}{because}; it needs the approval of {who}. A run would wait for it; here, add --approve"
        case decision:
            return f"{'denied' if decision == 'deny' else 'invalid'}{by}{because}"


def _show_outcome(name: str, verdict: Verdict, called: LocalCallResult, *, as_json: bool) -> None:
    if as_json:
        outcome = {"content": called.text} if called.ok else {"error": {"kind": called.kind, "text": called.text}}
        write_json({"tool": name, "ok": called.ok, "verdict": _verdict_json(verdict), **outcome})
    elif called.ok:
        write_document(called.text)
    else:
        write_note(*hanging_lines(f"{called.kind}: ", called.text))


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    return verdict.model_dump(mode="json", exclude_defaults=True)


def read_arguments(pairs: Iterable[str], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return `key=value` pairs as values of the schema's types. Raise ValueError for a pair without `=`."""
    properties: Mapping[str, Any] = parameters.get("properties", {})
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"{pair!r} is no argument; write key=value")
        schema = properties.get(name, {})
        if schema.get("type") == "array" and not text.lstrip().startswith("["):
            found.setdefault(name, []).append(_argument_value(text, schema.get("items", {})))
        else:
            found[name] = _argument_value(text, schema)
    return found


def _argument_value(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the value of a text. Text that cannot be parsed is kept, and the schema then refuses it."""
    kind = schema.get("type")
    kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
    if "string" in kinds:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


async def judge_call(asked: LocalCall, engine: PolicyEngine, approver: str = "") -> Verdict:
    """Return the gate's verdict. A call that needs approval is judged again if `approver` approves it."""
    from orga.activities.adapters.schemas.arguments import find_argument_errors
    from orga.activities.gate.gate import GateActivities

    gate = GateActivities(engine, find_argument_errors)
    request = GateRequest(
        agent=asked.agent,
        iteration=1,
        calls=(ToolCall(call_id="local", name=asked.spec.name, arguments=asked.arguments),),
        specs=(asked.spec,),
        offered=asked.listed,
    )
    (verdict,) = (await gate.gate(request)).verdicts
    if verdict.decision != "approval" or not approver:
        return verdict
    request = request.with_approval(approver, verdict.version)
    if verdict.arguments is not None:  # the approval is for the changed call
        request = request.with_calls((request.calls[0].with_arguments(verdict.arguments),))
    (again,) = (await gate.gate(request)).verdicts
    changed = again.arguments if again.arguments is not None else verdict.arguments
    return again.with_arguments(changed)


async def call_tool_once(tool: Tool, arguments: dict[str, Any], secrets: KnownSecrets) -> LocalCallResult:
    """Return the tool's output or its failure, as a model would read it."""
    from orga.activities.calls.activity import error_text

    context = ToolContext(call_id="local", idempotency_key=uuid4().hex, workflow_id="local")
    limit_s = tool.spec.options.timeout_s or LoopConfig().tool_timeout_s
    try:
        async with asyncio.timeout(limit_s):
            output = await tool.call(arguments, context)
    except ToolError as error:
        return LocalCallResult(False, _fit(str(error), secrets, MAX_ERROR_BYTES), error.kind)
    except TimeoutError:
        return LocalCallResult(False, f"{tool.spec.name} took longer than its {limit_s:g} s", "TimeLimit")
    except Exception as error:  # a run would also report it
        return LocalCallResult(False, _fit(error_text(error), secrets, MAX_ERROR_BYTES), type(error).__name__)
    return LocalCallResult(True, _fit(output.content, secrets, tool.spec.max_result_bytes))


def _fit(text: str, secrets: KnownSecrets, limit: int) -> str:
    return clip(secrets.redact(sanitized_text(clean_text(text))), limit)
