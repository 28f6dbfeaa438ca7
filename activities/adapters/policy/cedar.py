"""The Cedar engine: compiles the policies of a folder, judges proposals by them, and reloads changed files."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import cedarpy

from orga.activities.adapters.policy.cedar_files import PolicyFile, files_version, policy_files
from orga.activities.adapters.policy.cedar_policy import (
    BUDGET_ATTRIBUTES,
    CedarPolicy,
    parse_policy,
    split_statements,
)
from orga.activities.adapters.policy.cedar_types import (
    MAX_LONG,
    THIS_RUN,
    WantedValue,
    cedar_decimal,
    cedar_record,
    wanted_value,
)
from orga.activities.adapters.problem import BrokenPolicies, FileProblem
from orga.activities.adapters.threads import Threads
from orga.workflows.types.tool_calls.delegation import delegate_arguments
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict


def cedar_request(proposal: GateRequest, want: WantedValue, version: str) -> dict[str, Any]:
    """Return Cedar's request. Raise UnrepresentableValue if a policy names a value that Cedar cannot hold."""
    return {
        "principal": {"type": "Agent", "id": proposal.agent},
        "action": {"type": "Action", "id": proposal.action},
        "resource": _cedar_resource(proposal),
        "context": _cedar_context(proposal, want, version),
    }


def cedar_entities(proposal: GateRequest) -> str:
    """Return the facts about the called tool as JSON of Cedar's entities. Other actions need none."""
    if proposal.call is None or proposal.action != "tool_call":
        return "[]"
    name = proposal.call.name
    return json.dumps([{"uid": {"type": "Tool", "id": name}, "attrs": proposal.tool_facts(name), "parents": []}])


def _cedar_resource(proposal: GateRequest) -> dict[str, str]:
    if proposal.call is None or proposal.action == "terminate":
        return {"type": "Run", "id": THIS_RUN}
    if proposal.action == "delegate":
        return {"type": "Agent", "id": delegate_arguments(proposal.call.arguments)[0]}
    return {"type": "Tool", "id": proposal.call.name}


def _cedar_context(proposal: GateRequest, want: WantedValue, version: str) -> dict[str, Any]:
    arguments = proposal.call.arguments if proposal.call else {}
    spec = proposal.spec(proposal.call.name) if proposal.call else None
    schema = spec.parameters if spec else None
    optional = {
        "tenant": proposal.tenant,
        "approved_by": proposal.approver_under(version) or None,
        "answer": proposal.answer,
        "plan": _plan_summary(proposal) if proposal.plan else None,
    }
    return {
        "arguments": cedar_record(arguments, want.attribute("arguments"), schema, "arguments"),
        "trusted": cedar_record(proposal.trusted_context, want.attribute("trusted"), None, "trusted"),
        "values": cedar_record(proposal.values, want.attribute("values"), None, "values"),
        "iteration": proposal.iteration,
        "depth": proposal.depth,
        "left": {
            name: _remaining_budget(name, value) for name, value in proposal.left.items() if name in BUDGET_ATTRIBUTES
        },
        "taint": list(proposal.taint),
        "tainted": bool(proposal.taint),
        "purpose": proposal.purpose,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _plan_summary(proposal: GateRequest) -> dict[str, Any]:
    """Return a summary of all steps, because Cedar cannot look at each step of a list."""
    skills = list(dict.fromkeys(step.skill for step in proposal.plan))
    facts = [proposal.tool_facts(name) for name in skills]
    return {
        "steps": len(proposal.plan),
        "skills": skills,
        "effects": list(dict.fromkeys(tool["effect"] for tool in facts)),
        "tags": list(dict.fromkeys(tag for tool in facts for tag in tool["tags"])),
    }


def _remaining_budget(name: str, value: float) -> Any:
    """Return the rest of a budget in Cedar's form, rounded down."""
    if name == "cost_usd":
        return cedar_decimal(value, "left.cost_usd", is_rounded=True)
    return int(min(value, MAX_LONG))


MAX_READ_S = 10.0
"""Seconds of processor time to read all policies. A thousand ordinary policies take half a second."""


@dataclass(frozen=True)
class CedarSet:
    """The compiled policies of a folder."""

    policies: Mapping[str, CedarPolicy]
    """The policies by id, in the order of the files."""
    version: str
    all_of_them: cedarpy.PolicySet
    without_liftable: cedarpy.PolicySet
    """The policies without the forbids that a person may lift, because they have `@approval`."""
    wanted: WantedValue
    """The arguments, trusted facts and values that at least one policy names. Cedar gets no others."""


def compile_policies(files: tuple[PolicyFile, ...]) -> CedarSet:
    """Return the compiled policies. If files have problems, raise BrokenPolicies with all of them."""
    policies, problems = read_policies(files)
    if problems:
        raise BrokenPolicies(problems)
    return CedarSet(
        policies={policy.policy_id: policy for policy in policies},
        version=files_version(files),
        all_of_them=_policy_set(policies),
        without_liftable=_policy_set(policy for policy in policies if not is_liftable(policy)),
        wanted=wanted_value(item for policy in policies for item in policy.types.items()),
    )


def read_policies(files: tuple[PolicyFile, ...]) -> tuple[list[CedarPolicy], list[FileProblem]]:
    """Return the valid active policies of the files, and the problems of all others."""
    policies: list[CedarPolicy] = []
    problems: list[FileProblem] = []
    until = time.thread_time() + MAX_READ_S
    for file in files:
        try:
            text = file.content.decode()
        except UnicodeDecodeError as error:
            problems.append(FileProblem(file.shown, f"byte {error.start} is not UTF-8", "save it as UTF-8"))
            continue
        for statement in split_statements(text, file.shown):
            if time.thread_time() > until:
                problem = f"reading the policies up to here took {MAX_READ_S:g} s of processor time"
                problems.append(FileProblem(statement.place, problem, "remove policies, or make them simpler"))
                return policies, problems
            try:
                if policy := parse_policy(statement):
                    policies.append(policy)
            except BrokenPolicies as error:
                problems += error.problems
    return policies, [*problems, *_duplicate_problems(policies)]


def is_liftable(policy: CedarPolicy) -> bool:
    return policy.is_forbid and policy.annotations.approval is not None


def _policy_set(policies: Iterable[CedarPolicy]) -> cedarpy.PolicySet:
    nodes = {policy.policy_id: policy.node for policy in policies}
    return cedarpy.PolicySet.from_json_str(json.dumps({"staticPolicies": nodes, "templates": {}, "templateLinks": []}))


def _duplicate_problems(policies: Iterable[CedarPolicy]) -> Iterator[FileProblem]:
    seen: dict[str, CedarPolicy] = {}
    for policy in policies:
        first = seen.setdefault(policy.policy_id, policy)
        if first is not policy:
            problem = f"the id {policy.policy_id!r} is taken by {first.statement.place}"
            yield FileProblem(policy.statement.place_of_text("@id"), problem, "give each policy an id of its own")


class UndecidedError(ValueError):
    """Cedar reached no reliable decision."""


def cedar_verdict(policies: CedarSet, proposal: GateRequest) -> Verdict:
    """Return the verdict. A forbid wins over a permit. Without a permit, or without a reliable decision, deny."""
    try:
        request = cedar_request(proposal, policies.wanted, policies.version)
        is_allowed, deciding = _evaluate(policies, policies.all_of_them, request, cedar_entities(proposal))
        lifted: list[CedarPolicy] = []
        may_be_lifted = bool(deciding) and all(map(is_liftable, deciding))
        if not is_allowed and may_be_lifted:
            lifted = deciding
            is_allowed, deciding = _evaluate(policies, policies.without_liftable, request, cedar_entities(proposal))
    except ValueError as error:
        return Verdict(decision="deny", reason=f"the policies cannot judge this: {error}", version=policies.version)
    if not is_allowed:
        return _denial(policies, proposal, deciding)
    return _allowance(policies, lifted, deciding)


def _evaluate(
    policies: CedarSet, compiled: cedarpy.PolicySet, request: dict[str, Any], entities: str
) -> tuple[bool, list[CedarPolicy]]:
    """Return whether the request is allowed, and by which policies. Raise UndecidedError if a forbid may be lost."""
    found = cedarpy.is_authorized(request, compiled, entities)  # pyright: ignore[reportUnknownMemberType]
    if errors := found.diagnostics.errors:
        raise UndecidedError("; ".join(errors))
    if found.decision is cedarpy.Decision.NoDecision:
        raise UndecidedError("Cedar gave no decision")
    reasons = set(found.diagnostics.reasons)
    return found.allowed, [policy for policy_id, policy in policies.policies.items() if policy_id in reasons]


def _denial(policies: CedarSet, proposal: GateRequest, deciding: Sequence[CedarPolicy]) -> Verdict:
    forbidding = _policy_reasons(deciding)
    reason = f"forbidden by policy {forbidding}" if deciding else f"no policy permits {_proposal_text(proposal)}"
    return Verdict(decision="deny", reason=reason, policies=_policy_ids(deciding), version=policies.version)


def _allowance(policies: CedarSet, lifted: Sequence[CedarPolicy], permits: Sequence[CedarPolicy]) -> Verdict:
    """Return the verdict. A person must lift each forbid in `lifted`, and approve if all permits have `@approval`."""
    asking = [*lifted]
    demands = _approval_terms(lifted)
    permit_terms = _approval_terms(permits)
    if permits and len(permit_terms) == len(permits):
        asking += permits
        demands.append(reduce(_either_terms, permit_terms))
    by: dict[str, Any] = {"policies": _policy_ids([*lifted, *permits]), "version": policies.version}
    if not demands:
        return Verdict(decision="allow", tools=_permitted_tools(permits), **by)
    terms, asked_by = _combined_terms(demands), _policy_reasons(asking)
    if terms is None:
        reason = f"no one person may approve this: {asked_by} name different approvers"
        return Verdict(decision="deny", reason=reason, **by)
    reason = f"policy {asked_by}"
    return Verdict(decision="approval", reason=reason, tools=_permitted_tools(permits), approval=terms, **by)


def _approval_terms(policies: Iterable[CedarPolicy]) -> list[ApprovalTerms]:
    return [policy.annotations.approval for policy in policies if policy.annotations.approval]


def _either_terms(one: ApprovalTerms, other: ApprovalTerms) -> ApprovalTerms:
    """Return terms under which an approver of either terms may approve. No named approvers means anyone."""
    are_limited = one.approvers and other.approvers
    approvers = tuple(dict.fromkeys((*one.approvers, *other.approvers))) if are_limited else ()
    return ApprovalTerms(approvers=approvers, expires_s=min(one.expires_s, other.expires_s))


def _combined_terms(demands: Sequence[ApprovalTerms]) -> ApprovalTerms | None:
    """Return terms under which one person meets all demands, or None if no one person can."""
    named = [terms.approvers for terms in demands if terms.approvers]
    approvers = tuple(name for name in named[0] if all(name in others for others in named)) if named else ()
    if named and not approvers:
        return None
    return ApprovalTerms(approvers=approvers, expires_s=min(terms.expires_s for terms in demands))


def _permitted_tools(permits: Iterable[CedarPolicy]) -> tuple[str, ...] | None:
    """Return the tools that all `@tools` lists have in common, or None if no permit limits the tools."""
    lists = [policy.annotations.tools for policy in permits if policy.annotations.tools is not None]
    return tuple(name for name in lists[0] if all(name in others for others in lists)) if lists else None


def _policy_ids(deciding: Iterable[CedarPolicy]) -> tuple[str, ...]:
    return tuple(policy.policy_id for policy in deciding)


def _policy_reasons(deciding: Iterable[CedarPolicy]) -> str:
    reasons = (
        f"{policy.policy_id}: {policy.annotations.reason}" if policy.annotations.reason else policy.policy_id
        for policy in deciding
    )
    return "; ".join(reasons)


def _proposal_text(proposal: GateRequest) -> str:
    match proposal.action:
        case "tool_call" if proposal.call is not None:
            return f"{proposal.call.name} for agent {proposal.agent}"
        case "delegate" if proposal.call is not None:
            return f"{proposal.agent} to delegate to {proposal.call.arguments.get('agent')}"
        case "terminate":
            return f"{proposal.agent} to end its run"
        case "plan":
            return f"this plan of {proposal.agent}"
        case _:
            return f"{proposal.agent} to answer"


CHECK_INTERVAL_S = 1.0
"""Seconds between two checks for changed files."""

SETTLED_S = 0.05
"""Seconds between two reads of changed files. They are used when both reads are equal."""

MAX_CHECKS = 20
"""Reads of files that keep changing, until they count as broken."""

HOLD_S = 12.0
"""Seconds that proposals wait for a repair of broken policies: less than all attempts of the gate together."""

_log = logging.getLogger(__name__)


class CedarPolicies:
    """Judges by the `*.cedar` files of a folder.

    If a change breaks the policies, proposals wait `hold_s` seconds for a repair. After that, everything is denied.
    """

    is_embedded = True

    def __init__(
        self,
        folder: Path,
        surface: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        hold_s: float = HOLD_S,
    ) -> None:
        """Read and compile the folder. Raise BrokenPolicies if a policy cannot be used."""
        self._folder, self._surface, self._clock = folder, surface, clock
        self._threads = Threads("cedar", 2)
        self._current: CedarSet | BrokenPolicies = compile_policies(policy_files(folder, surface))
        self.version = self._current.version
        """Digest of the files in use."""
        self._next_check = clock() + CHECK_INTERVAL_S
        self._hold_s = hold_s
        self._held_until = 0.0

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Return the verdict by the current files. If they are broken, wait for their repair first."""
        await self._reload_if_due()
        while isinstance(self._current, BrokenPolicies) and self._clock() < self._held_until:
            await asyncio.sleep(min(CHECK_INTERVAL_S, self._hold_s) / 4)
            await self._reload_if_due()
        if isinstance(self._current, CedarSet):
            return cedar_verdict(self._current, proposal)
        problems = str(self._current).replace(f"{self._folder.parent}/", "")  # hides the machine's paths from models
        return Verdict(decision="deny", reason=f"the policies are broken: {problems}", version=self.version)

    async def _reload_if_due(self) -> None:
        if self._clock() >= self._next_check:
            self._next_check = self._clock() + CHECK_INTERVAL_S
            await self._reload()

    async def _reload(self) -> None:
        version = ""
        try:
            files = await self._threads.run(self._stable_files)
            version = files_version(files)
            if version == self.version:
                return
            found = await self._threads.run(compile_policies, files)
        except BrokenPolicies as error:
            found = error
        self._adopt(found, version)

    def _stable_files(self) -> tuple[PolicyFile, ...]:
        """Return the files. Two reads of changed files must be equal: a half-written file may lack a `forbid`."""
        files = policy_files(self._folder, self._surface)
        if files_version(files) == self.version:
            return files
        for _ in range(MAX_CHECKS):
            time.sleep(SETTLED_S)
            before, files = files, policy_files(self._folder, self._surface)
            if files == before:
                return files
        problem = "its files change again and again"
        raise BrokenPolicies([FileProblem(str(self._folder), problem, "write them elsewhere and rename them")])

    def _adopt(self, found: CedarSet | BrokenPolicies, version: str) -> None:
        before = self._current
        self._current, self.version = found, version
        if isinstance(found, CedarSet):
            _log.warning("the policies have changed: %d policies, version %s", len(found.policies), version)
            return
        if isinstance(before, CedarSet):
            self._held_until = self._clock() + self._hold_s
        if str(found) != str(before):
            _log.error(
                "THE POLICIES ARE BROKEN: calls wait for %g s, then everything is denied until they are corrected:\n%s",
                self._hold_s,
                found,
            )
