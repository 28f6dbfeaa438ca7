"""The `gate` activity: what does not fit its schema first, then policy; one verdict for each proposal."""

from collections.abc import Callable
from typing import Any

from temporalio import activity

from activities.error_text import error_text
from activities.instruments import count_denials
from activities.known_secrets import NO_SECRETS, KnownSecrets
from activities.log_context import log_iteration
from activities.narrowing import narrowed, target_of
from activities.ports import Judgement, PolicyEngine, Proposal
from activities.recordable import recordable
from workflows.types.answer_json import answer_json
from workflows.types.delegation import DELEGATE
from workflows.types.gate import GateRequest, Verdict, Verdicts
from workflows.types.messages import ToolCall
from workflows.types.text import clean_text
from workflows.types.tools import ToolSpec

MAX_REASON_CHARS = 1_000

MAX_MODIFICATIONS = 2
"""Times that a policy may change the arguments of one call; a set that changes its own change for ever is denied."""

ArgumentErrors = Callable[[dict[str, Any], Any], list[str]]
"""Takes a JSON Schema and a value; returns what does not fit; raises ValueError for a schema that is no schema."""


class GateActivities:
    """Verdicts from an injected policy engine. Whatever it raises is a denial."""

    def __init__(
        self, engine: PolicyEngine, argument_errors: ArgumentErrors, secrets: KnownSecrets = NO_SECRETS
    ) -> None:
        self._engine = engine
        self._argument_errors = argument_errors
        self._secrets = secrets

    @activity.defn(name="gate")
    async def gate(self, request: GateRequest) -> Verdicts:
        """Return the verdicts, in call order."""
        log_iteration(request.iteration)
        if request.calls:
            specs = {spec.name: spec for spec in request.specs}
            verdicts = tuple([await self._on_call(request, call, specs) for call in request.calls])
        else:
            verdicts = (await self._on_answer(request),)
        verdicts = recordable(verdicts)
        count_denials(request.calls, verdicts)
        return self._secrets.hidden_in(Verdicts(verdicts=verdicts))

    async def _on_answer(self, request: GateRequest) -> Verdict:
        if problem := self._misfit_answer(request):
            return Verdict(decision="invalid", reason=clean_text(problem)[:MAX_REASON_CHARS])
        proposal = _proposal(request)
        judgement = await self._judgement(proposal)
        if judgement.allowed and judgement.arguments is not None:  # it was not meant to be said as it stands
            return _denied("the policy wants to change a final answer; it can only allow or deny one")
        return _verdict(proposal, judgement)

    def _misfit_answer(self, request: GateRequest) -> str:
        if request.output_schema is None:
            return ""
        try:
            errors = self._argument_errors(request.output_schema, answer_json(request.answer or ""))
        except ValueError as error:
            errors = [str(error)]
        return "the final answer does not fit the schema: " + "; ".join(errors) if errors else ""

    async def _on_call(self, request: GateRequest, call: ToolCall, specs: dict[str, ToolSpec]) -> Verdict:
        """Return the verdict; arguments that policy put in place of the model's are checked and judged like any."""
        spec, proposed = specs.get(call.name), call.arguments
        for _ in range(MAX_MODIFICATIONS + 1):
            problem = _unknown(call, request.offered) if spec is None else self._misfit(call, spec)
            if problem or spec is None:
                return Verdict(decision="invalid", reason=problem[:MAX_REASON_CHARS])
            proposal = _proposal(request, call, spec)
            judgement = await self._judgement(proposal)
            if not judgement.allowed or judgement.arguments is None or judgement.arguments == call.arguments:
                verdict = _verdict(proposal, judgement)
                return verdict if call.arguments == proposed else _with_arguments(verdict, call)
            call = call.model_copy(update={"arguments": judgement.arguments})
        return _denied(f"the policy changed the arguments of {call.name} again and again")

    def _misfit(self, call: ToolCall, spec: ToolSpec) -> str:
        if call.malformed is not None:
            return f"the arguments of {call.name} are not a JSON object: {call.malformed[:200]}"
        try:
            errors = self._argument_errors(spec.parameters, call.arguments)
        except ValueError as error:
            return f"{call.name} cannot be called: {error}"
        return f"the arguments of {call.name} do not fit: " + "; ".join(errors) if errors else ""

    async def _judgement(self, proposal: Proposal) -> Judgement:
        try:
            return await self._engine.judge(proposal)
        except Exception as error:
            activity.logger.exception("the policy engine failed; denied")
            return Judgement(
                allowed=False, reason=f"the policy engine failed: {type(error).__name__}: {error_text(error)}"
            )


def _verdict(proposal: Proposal, judgement: Judgement) -> Verdict:
    """Return the verdict; only what is set is written, since every verdict is in the history."""
    by: dict[str, Any] = {name: value for name in ("policies", "version") if (value := getattr(judgement, name))}
    if judgement.allowed is not True:
        return _denied(judgement.reason or "not allowed", **by)
    if judgement.approval is not None and not _is_approved(proposal, judgement):
        reason = clean_text(judgement.reason)[:MAX_REASON_CHARS]
        return Verdict(decision="approval", reason=reason, approval=judgement.approval, **by)
    if proposal.call is None or proposal.call.name != DELEGATE:
        return Verdict(decision="allow", **by)
    target = target_of(proposal.call, proposal.delegates)
    if target is None:  # what its config leaves it is not known
        return _denied(f"{proposal.call.arguments.get('agent')!r} is no agent to delegate to", **by)
    tools = narrowed(target, judgement)
    return Verdict(decision="allow", **by) if tools is None else Verdict(decision="allow", tools=tools, **by)


def _is_approved(proposal: Proposal, judgement: Judgement) -> bool:
    """Whether a person who may do so has approved this very proposal under this very policy set."""
    approvers = judgement.approval.approvers if judgement.approval else ()
    may_decide = not approvers or proposal.approved_by in approvers
    return bool(proposal.approved_by) and may_decide and proposal.approved_version == judgement.version


def _with_arguments(verdict: Verdict, call: ToolCall) -> Verdict:
    return verdict.model_copy(update={"arguments": call.arguments})


def _denied(reason: str, **by: Any) -> Verdict:
    return Verdict(decision="deny", reason=clean_text(reason)[:MAX_REASON_CHARS], **by)


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
        purpose=request.purpose,
        depth=request.depth,
        taint=request.taint,
        left=request.left,
        approved_by=request.approved_by,
        approved_version=request.approved_version,
    )


def _unknown(call: ToolCall, offered: tuple[str, ...]) -> str:
    names = ", ".join(offered) or "none"
    return f"there is no tool {call.name!r}; the tools are: {names}"
