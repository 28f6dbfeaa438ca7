"""One tool call without a run. As in a run, it passes the schema, then the policy, then the tool."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.calls.activity import error_text
from orga.activities.gate.gate import GateActivities
from orga.activities.ports import PolicyEngine, Tool, ToolContext, ToolError
from orga.activities.text.sanitize import sanitized_text
from orga.activities.text.secrets import KnownSecrets
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.text import clean_text, clip
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from orga.workflows.types.tool_calls.tools import ToolSpec

MAX_ERROR_BYTES = 4_000


@dataclass(frozen=True)
class LocalCall:
    """An agent's call."""

    agent: str
    listed: tuple[str, ...]
    """The worker's tools that the agent's configuration lists."""
    spec: ToolSpec
    arguments: dict[str, Any]


@dataclass(frozen=True)
class LocalCallResult:
    """The outcome of the call."""

    ok: bool
    text: str
    kind: str = ""
    """The kind of failure."""


def read_arguments(pairs: Iterable[str], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return `key=value` pairs as JSON values of the types in the schema. A list is repeated pairs, or JSON.

    Raises:
        ValueError: A pair has no `=`.
    """
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


async def execute_call(tool: Tool, arguments: dict[str, Any], secrets: KnownSecrets) -> LocalCallResult:
    """Return the tool's output or its failure, as a model would read it."""
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
