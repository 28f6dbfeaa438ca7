"""The `gate` activity: what does not fit its schema first, then policy; one verdict for each proposal."""

from collections.abc import Callable
from typing import Any

from temporalio import activity

from activities.error_text import error_text
from activities.instruments import count_denials
from activities.log_context import log_iteration
from activities.narrowing import narrowed, target_of
from activities.ports import Judgement, PolicyEngine, Proposal
from workflows.types.answer_json import answer_json
from workflows.types.delegation import DELEGATE
from workflows.types.gate import GateRequest, Verdict, Verdicts
from workflows.types.messages import ToolCall
from workflows.types.text import clean_text
from workflows.types.tools import ToolSpec

MAX_REASON_CHARS = 1_000

ArgumentErrors = Callable[[dict[str, Any], Any], list[str]]
"""Takes a JSON Schema and a value; returns what does not fit; raises ValueError for a schema that is no schema."""


class GateActivities:
    """Verdicts from an injected policy engine. Whatever it raises is a denial."""

    def __init__(self, engine: PolicyEngine, argument_errors: ArgumentErrors) -> None:
        self._engine = engine
        self._argument_errors = argument_errors

    @activity.defn(name="gate")
    async def gate(self, request: GateRequest) -> Verdicts:
        """Return the verdicts, in call order."""
        log_iteration(request.iteration)
        if request.calls:
            specs = {spec.name: spec for spec in request.specs}
            verdicts = tuple([await self._on_call(request, call, specs) for call in request.calls])
        else:
            verdicts = (await self._on_answer(request),)
        count_denials(request.calls, verdicts)
        return Verdicts(verdicts=verdicts)

    async def _on_answer(self, request: GateRequest) -> Verdict:
        if problem := self._misfit_answer(request):
            return Verdict(decision="invalid", reason=clean_text(problem)[:MAX_REASON_CHARS])
        return await self._judge(_proposal(request))

    def _misfit_answer(self, request: GateRequest) -> str:
        if request.output_schema is None:
            return ""
        try:
            errors = self._argument_errors(request.output_schema, answer_json(request.answer or ""))
        except ValueError as error:
            errors = [str(error)]
        return "the final answer does not fit the schema: " + "; ".join(errors) if errors else ""

    async def _on_call(self, request: GateRequest, call: ToolCall, specs: dict[str, ToolSpec]) -> Verdict:
        spec = specs.get(call.name)
        problem = _unknown(call, request.offered) if spec is None else self._misfit(call, spec)
        if problem or spec is None:
            return Verdict(decision="invalid", reason=problem[:MAX_REASON_CHARS])
        return await self._judge(_proposal(request, call, spec))

    def _misfit(self, call: ToolCall, spec: ToolSpec) -> str:
        if call.malformed is not None:
            return f"the arguments of {call.name} are not a JSON object: {call.malformed[:200]}"
        try:
            errors = self._argument_errors(spec.parameters, call.arguments)
        except ValueError as error:
            return f"{call.name} cannot be called: {error}"
        return f"the arguments of {call.name} do not fit: " + "; ".join(errors) if errors else ""

    async def _judge(self, proposal: Proposal) -> Verdict:
        try:
            judgement = await self._engine.judge(proposal)
        except Exception as error:
            activity.logger.exception("the policy engine failed; denied")
            return _denied(f"the policy engine failed: {type(error).__name__}: {error_text(error)}")
        return (
            _allowed(proposal, judgement) if judgement.allowed is True else _denied(judgement.reason or "not allowed")
        )


def _allowed(proposal: Proposal, judgement: Judgement) -> Verdict:
    if proposal.call is None or proposal.call.name != DELEGATE:
        return Verdict(decision="allow")
    target = target_of(proposal.call, proposal.delegates)
    if target is None:  # what its config leaves it is not known
        return _denied(f"{proposal.call.arguments.get('agent')!r} is no agent to delegate to")
    tools = narrowed(target, judgement)
    return Verdict(decision="allow") if tools is None else Verdict(decision="allow", tools=tools)


def _denied(reason: str) -> Verdict:
    return Verdict(decision="deny", reason=clean_text(reason)[:MAX_REASON_CHARS])


def _proposal(request: GateRequest, call: ToolCall | None = None, spec: ToolSpec | None = None) -> Proposal:
    return Proposal(
        agent=request.agent,
        iteration=request.iteration,
        call=call,
        spec=spec,
        answer=request.answer,
        tenant=request.tenant,
        trusted_context=request.trusted_context,
        listed=request.offered,
        delegates=request.delegates,
    )


def _unknown(call: ToolCall, offered: tuple[str, ...]) -> str:
    names = ", ".join(offered) or "none"
    return f"there is no tool {call.name!r}; the tools are: {names}"
