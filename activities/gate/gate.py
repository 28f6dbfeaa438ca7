"""The `gate` activity: checks each proposal against its schema, then asks policy for a verdict."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from temporalio import activity

from orga.activities.calls.activity import error_text, heartbeats, log_iteration
from orga.activities.gate.permits import PermitKeys, SignedCall, current_activity_identity
from orga.activities.instruments import count_verdicts
from orga.activities.ports import PolicyEngine
from orga.activities.text.secrets import NO_SECRETS, KnownSecrets
from orga.workflows.types.json_text import MAX_DEPTH, is_deeper, parsed_answer_json
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.text import clean_text
from orga.workflows.types.tool_calls.delegation import DelegateSpec
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict, Verdicts, is_weaker_engine, permit_terms
from orga.workflows.types.tool_calls.loop_tools import LOOP_TOOLS, loop_tool
from orga.workflows.types.tool_calls.tools import Caller

MAX_BYTES = 400_000
"""Bytes of all verdicts on one reply. The history holds the changed arguments of held calls a second time."""

MAX_WAIT_S = 10 * 365 * 86_400.0
"""Seconds. A call can be held for ten years. There is a limit because `datetime` ends with the year 9999."""

UNRECORDABLE = "the policy's answer cannot be recorded"

MAX_REASON_CHARS = 1_000

MAX_MODIFICATIONS = 2
"""Times that policies may change the arguments of one call. If they change them once more, the call is denied."""

MAX_CONCURRENT_QUERIES = 4
"""Concurrent questions to a policy server. Even a server that handles one at a time answers so few in time."""

VERDICT_TIME_SHARE = 0.8
"""Share of an attempt's time that policy engines have. The rest is for returning the verdicts."""

ArgumentErrors = Callable[[dict[str, Any], Any], Awaitable[list[str]]]
"""Takes a JSON Schema and a value, and returns the errors. Raises ValueError for an invalid schema.

The function must not wait for other work, because a proposal without a verdict in time is denied."""

_ALLOWING = frozenset({"allow", "approval"})
"""Decisions of an engine that let a proposal through, at once or after a person's approval."""

JudgeFunction = Callable[[], Awaitable[Verdict]]
NamedJudge = tuple[str, JudgeFunction]
"""The name of what is judged, and the function that judges it."""


def recordable_verdicts(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Return the verdicts in order. A denial replaces each that is too large or cannot be recorded unchanged."""
    recordable: list[Verdict] = []
    room = MAX_BYTES
    for verdict in map(_with_bounded_expiry, verdicts):
        size = _recorded_size(verdict)
        if size is not None and size <= room:
            recordable.append(verdict)
            room -= size
        else:
            recordable.append(Verdict(decision="deny", reason=UNRECORDABLE))
            room -= len(UNRECORDABLE)
    return tuple(recordable)


def _with_bounded_expiry(verdict: Verdict) -> Verdict:
    if verdict.approval is None or verdict.approval.expires_s <= MAX_WAIT_S:
        return verdict
    return verdict.with_terms(verdict.approval.with_expiry(MAX_WAIT_S))


def _recorded_size(verdict: Verdict) -> int | None:
    """Return the verdict's bytes in a history. None: JSON would change it, for example NaN or a lone surrogate."""
    if is_deeper(verdict.arguments, MAX_DEPTH):
        return None
    try:
        text = verdict.model_dump_json(exclude_unset=True)
        return len(text.encode()) if Verdict.model_validate_json(text) == verdict else None
    except (ValueError, RecursionError):
        return None


def narrowed_tools(delegate: DelegateSpec, verdict: Verdict) -> tuple[str, ...] | None:
    """Return which of its own tools the delegate may use. None means all of them."""
    if verdict.tools is None:
        return delegate.tools
    if delegate.tools is None:
        return tuple(verdict.tools)
    return tuple(tool for tool in delegate.tools if tool in verdict.tools)


@dataclass(frozen=True)
class GateActivities:
    """Gets verdicts from an injected policy engine. Any exception that the engine raises is a denial."""

    engine: PolicyEngine
    argument_errors: ArgumentErrors
    secrets: KnownSecrets = NO_SECRETS
    engine_name: str = ""
    permits: PermitKeys | None = None

    @activity.defn(name="gate")
    async def gate(self, request: GateRequest) -> Verdicts:
        """Return one verdict for each call of the request, or the one on its plan or answer."""
        log_iteration(request.iteration)
        verdicts = recordable_verdicts(await self._verdicts(request))
        count_verdicts(request.calls, verdicts, {spec.name for spec in request.specs})
        recorded = self.secrets.redact_record(Verdicts(verdicts=verdicts))
        if len(request.places) > 1:
            recorded = Verdicts(verdicts=recorded.verdicts, places=request.places)
        return self._with_permits(request, recorded)

    async def _verdicts(self, request: GateRequest) -> tuple[Verdict, ...]:
        if is_weaker_engine(self.engine_name, request.engine):
            why = f"this run began under the policy engine {request.engine}, and its worker has {self.engine_name}"
            remedy = f"Ask the operator for a worker with {request.engine}"
            return (_denial(f"{why}, which checks less. {remedy}"),) * max(len(request.calls), 1)
        if request.calls:
            return await self._judge_all(
                [(call.name, partial(self._judge_call, request, call)) for call in request.calls]
            )
        if request.plan:
            return await self._judge_all([("the plan", partial(self._judge_unmodified, request, "plan"))])
        return await self._judge_all([("the answer", partial(self._judge_answer, request))])

    def _with_permits(self, request: GateRequest, recorded: Verdicts) -> Verdicts:
        """Sign the allowed calls exactly as recorded. The loop's own tools need no permit: they have no activity."""
        keys = self.permits
        if keys is None or not request.calls or len(request.places) != len(request.calls):
            return recorded

        def with_permit(verdict: Verdict, call: ToolCall, place: str) -> Verdict:
            if verdict.decision != "allow" or call.name in LOOP_TOOLS:
                return verdict
            arguments = call.arguments if verdict.arguments is None else verdict.arguments
            signed = SignedCall(call.name, arguments, _caller(request, call.name))
            terms = permit_terms(verdict.version, request.purpose, request.approved_by)
            return verdict.with_permit(keys.sign(current_activity_identity(place), signed, terms))

        permitted = map(with_permit, recorded.verdicts, request.calls, request.places)
        return recorded.with_verdicts(tuple(permitted))

    async def _judge_all(self, judged: Sequence[NamedJudge]) -> tuple[Verdict, ...]:
        if self.engine.is_embedded:
            return tuple([await judge() for _, judge in judged])
        return await self._judge_concurrently(judged)

    async def _judge_concurrently(self, judged: Sequence[NamedJudge]) -> tuple[Verdict, ...]:
        """Judge several proposals at once. Deny those without a verdict in time, which does not affect the others."""
        room, allowed_s = asyncio.Semaphore(MAX_CONCURRENT_QUERIES), verdict_time_s()
        until = None if allowed_s is None else asyncio.get_running_loop().time() + allowed_s

        async def verdict(name: str, judge: JudgeFunction) -> Verdict:
            try:
                async with asyncio.timeout_at(until), room:
                    return await judge()
            except TimeoutError:
                return _denial(f"the policy engine was too slow: nothing about {name} within {allowed_s:g} s")

        async with heartbeats():
            return tuple(await asyncio.gather(*(verdict(name, judge) for name, judge in judged)))

    async def _judge_answer(self, request: GateRequest) -> Verdict:
        errors: list[str] = []
        if request.output_schema is not None:
            try:
                value = parsed_answer_json(request.answer or "")
                errors = await self.argument_errors(request.output_schema, value)
            except ValueError as error:
                errors = [str(error)]
        if errors:
            problem = "the final answer does not fit the schema: " + "; ".join(errors)
            return Verdict(decision="invalid", reason=clean_text(problem)[:MAX_REASON_CHARS])
        return await self._judge_unmodified(request, "final answer")

    async def _judge_unmodified(self, request: GateRequest, what: str) -> Verdict:
        judged = await self._engine_verdict(request)
        if judged.decision in _ALLOWING and judged.arguments is not None:  # the policy does not allow it unchanged
            return _denial(f"the policy wants to change a {what}; it can only allow or deny one")
        return _final_verdict(request, judged)

    async def _judge_call(self, request: GateRequest, call: ToolCall) -> Verdict:
        """Judge the call, and once more with the arguments that policy gave it, until policy leaves them unchanged."""
        proposed = call.arguments
        decided_by: dict[str, Any] = {}
        for _ in range(MAX_MODIFICATIONS + 1):
            if problem := await self._call_problem(request, call):
                return Verdict(decision="invalid", reason=problem[:MAX_REASON_CHARS], **decided_by)
            proposal = request.with_calls((call,))
            judged = await self._engine_verdict(proposal)
            # the policies that changed the arguments earlier have decided too
            judged = judged.with_policies(tuple(dict.fromkeys([*decided_by.get("policies", ()), *judged.policies])))
            wanted = judged.arguments if judged.decision in _ALLOWING else None
            if wanted is None or _is_same_json(wanted, call.arguments):
                verdict = _final_verdict(proposal, judged)
                return verdict if _is_same_json(call.arguments, proposed) else verdict.with_arguments(call.arguments)
            call, decided_by = call.with_arguments(wanted), _deciding_fields(judged)
        return _denial(f"the policy changed the arguments of {call.name} again and again", **decided_by)

    async def _call_problem(self, request: GateRequest, call: ToolCall) -> str:
        """Return why no tool can take the call, or ""."""
        spec = request.spec(call.name)
        if spec is None:
            return f"there is no tool {call.name!r}; the tools are: {', '.join(request.offered) or 'none'}"
        if call.malformed is not None:
            return f"the arguments of {call.name} are not a JSON object with each key once: {call.malformed[:200]}"
        try:
            errors = await self.argument_errors(spec.parameters, call.arguments)
        except ValueError as error:
            return f"{call.name} cannot be called: {error}"
        return f"the arguments of {call.name} do not fit: " + "; ".join(errors) if errors else ""

    async def _engine_verdict(self, proposal: GateRequest) -> Verdict:
        try:
            return await self.engine.judge(proposal)
        except Exception as error:
            activity.logger.exception("the policy engine failed; denied")
            reason = f"the policy engine failed: {type(error).__name__}: {error_text(error)}"
            return Verdict(decision="deny", reason=reason)


def _caller(request: GateRequest, tool: str) -> Caller | None:
    """Return the caller as the run gives it to the tool, or None if the tool does not take it."""
    spec = request.spec(tool)
    if spec is None or not spec.takes_caller:
        return None
    return Caller.from_facts(request.agent, request.tenant, request.trusted_context, request.approved_by)


def _is_same_json(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Return whether both are the same JSON. To Python 1, 1.0 and True are equal, but a tool sees three values."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def verdict_time_s() -> float | None:
    """Return the seconds that this attempt has for its verdicts, or None outside an activity."""
    limit = activity.info().start_to_close_timeout if activity.in_activity() else None
    return limit.total_seconds() * VERDICT_TIME_SHARE if limit else None


def _final_verdict(proposal: GateRequest, judged: Verdict) -> Verdict:
    """Return the verdict that the gate records. It has only the fields that the run needs, to save history.

    If a person has given the approval, the verdict is "allow". The tools of a delegate are narrowed.
    """
    decided_by = _deciding_fields(judged)
    if judged.decision not in _ALLOWING:
        return _denial(judged.reason or "not allowed", **decided_by)
    if (terms := judged.missing_approval(proposal)) is not None:
        reason = clean_text(judged.reason)[:MAX_REASON_CHARS]
        return Verdict(decision="approval", reason=reason, approval=terms, **decided_by)
    allowed = Verdict(decision="allow", **decided_by)
    if proposal.call is None or loop_tool(proposal.call.name).action != "delegate":
        return allowed
    agent = proposal.call.arguments.get("agent")
    delegate = next((each for each in proposal.delegates if each.agent == agent), None)
    if delegate is None:  # it is unknown which tools its configuration allows
        return _denial(f"{agent!r} is no agent to delegate to", **decided_by)
    tools = narrowed_tools(delegate, judged)
    return allowed if tools is None else Verdict(decision="allow", tools=tools, **decided_by)


def _deciding_fields(judged: Verdict) -> dict[str, Any]:
    """Return the policies and their version, if the engine names them."""
    return {name: value for name in ("policies", "version") if (value := getattr(judged, name))}


def _denial(reason: str, **decided_by: Any) -> Verdict:
    return Verdict(decision="deny", reason=clean_text(reason)[:MAX_REASON_CHARS], **decided_by)
