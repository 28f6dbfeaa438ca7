"""The gate's requests, verdicts and permits, the ids of its activities, and the comparison of policies.

A permit is the gate's signature on a call, so that no worker carries out a call that the gate did not allow.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

from orga.workflows.types.messages import ToolCall
from orga.workflows.types.record import Record, replace_differing_fields, replace_fields
from orga.workflows.types.tool_calls.delegation import DelegateSpec
from orga.workflows.types.tool_calls.loop_tools import loop_tool
from orga.workflows.types.tool_calls.tools import ToolSpec

Decision = Literal["allow", "deny", "invalid", "approval"]
"""`invalid`: refused before any policy was asked (unknown tool, arguments or an answer that do not fit). `approval`: a
person has to approve it first.
"""

Purpose = Literal["reply", "hydration", "fallback", "requeue", "saga", "compensation", "ending", "plan", "learning"]
"""The purpose of a call: the model's `reply`, a lookup before it (`hydration`), a replacement for a failed call
(`fallback`), a dead letter that is sent again (`requeue`), a step of a `saga` or its `compensation`. `ending` is text
for a run that ends without an answer, `plan` a goal's plan, and `learning` the call that stores a run's learnings.
"""

RECONFIRMED_PURPOSES: frozenset[Purpose] = frozenset({"saga", "compensation", "requeue"})
"""Purposes of calls that may be judged more than once, because they may run long after their first verdict."""

COMPENSATED_PURPOSES: frozenset[Purpose] = frozenset({"saga"})
"""Purposes of calls that a later call may undo. It can only do so after they have ended."""

UNCONFIRMED_PURPOSES: frozenset[Purpose] = frozenset({"compensation", "learning"})
"""Purposes of calls that are not judged again after a pause, because they also run while a run is ending."""

ENDING = "ending"
"""The place of the text of a run that ends without an answer."""

PLAN = "plan"
"""The place of a goal's plan."""

LEARNINGS = "learnings"
"""The place of the call that stores a run's learnings at its end."""

SEPARATE_PROPOSALS = frozenset({ENDING, PLAN, LEARNINGS})
"""Places of proposals that are neither a call nor the answer of a reply."""


class ProposedStep(Record):
    """A step of a plan that waits for a verdict."""

    id: str
    skill: str
    goal: str
    arguments: dict[str, Any] | None = None
    depends_on: tuple[str, ...] = ()


class ApprovalTerms(Record):
    """The approvers of a call, and the deadline."""

    approvers: tuple[str, ...] = ()
    """People who may decide. Empty: anyone who may send updates to the run."""
    expires_s: float = 86_400.0
    """Seconds without a decision after which the call is denied."""

    def with_expiry(self, seconds: float) -> Self:
        return replace_fields(self, {"expires_s": seconds})


class GateRequest(Record):
    """Input of `gate`: the calls of one reply, the final answer, or the plan of a goal.

    A policy engine gets each proposal in the same form: one call, the answer, or the plan.
    """

    agent: str
    iteration: int
    engine: str = ""
    """The policy engine that the run began under."""
    calls: tuple[ToolCall, ...] = ()
    places: tuple[str, ...] = ()
    """The activity ids of `calls`, to which permits are bound. For an answer: its iteration."""
    answer: str | None = None
    plan: tuple[ProposedStep, ...] = ()
    specs: tuple[ToolSpec, ...] = ()
    """The offered tools that `calls` or `plan` name. A plan's skills that are missing here are agents."""
    offered: tuple[str, ...] = ()
    """Tools that the agent's config lists."""
    tenant: str | None = None
    trusted_context: dict[str, Any] = {}
    delegates: tuple[DelegateSpec, ...] = ()
    """Agents that a `delegate` call may name."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of `answer`."""
    purpose: Purpose = "reply"
    depth: int = 0
    """Delegations that lead to this run."""
    taint: tuple[str, ...] = ()
    """Tools whose untrusted content has entered the conversation."""
    values: dict[str, Any] = {}
    """The latest value of each tool with an output schema."""
    left: dict[str, float] = {}
    """The amount left of each limited budget: `iterations`, `tokens`, `cost_usd`, `time_s`, ..."""
    approved_by: str = ""
    """The person who has approved the only proposal of this request, which is now judged once more."""
    approved_version: str = ""
    """The version of the policy set that asked for the approval."""

    @property
    def call(self) -> ToolCall | None:
        """The call that a policy engine judges. Raises ValueError if there are several."""
        (call,) = self.calls or (None,)
        return call

    @property
    def action(self) -> str:
        """The name that policies use for the proposal: `tool_call`, `delegate`, `terminate`, `plan` or `respond`."""
        if self.call is None:
            return "plan" if self.plan else "respond"
        return loop_tool(self.call.name).action

    def spec(self, name: str) -> ToolSpec | None:
        """Return the definition of a tool that `calls` or `plan` name."""
        return next((spec for spec in self.specs if spec.name == name), None)

    def tool_facts(self, name: str) -> dict[str, Any]:
        """Return the facts about a tool for policies. A tool without a definition counts as the most dangerous kind."""
        spec = self.spec(name)
        return {
            "name": name,
            "effect": spec.effect if spec else "irreversible",
            "tags": list(spec.options.tags) if spec else [],
            "verified": spec.options.verified if spec else False,
            "approval": spec.options.approval if spec else True,
        }

    def with_approval(self, approver: str, version: str) -> Self:
        """Return the request as approved by this person. Empty texts remove the approval."""
        return replace_fields(self, {"approved_by": approver, "approved_version": version})

    def approver_under(self, version: str) -> str:
        """Return the person who approved exactly this proposal under exactly this policy set, or ""."""
        return self.approved_by if self.approved_version == version else ""

    def with_calls(self, calls: tuple[ToolCall, ...]) -> Self:
        return replace_fields(self, {"calls": calls})

    def with_plan(self, plan: tuple[ProposedStep, ...], specs: tuple[ToolSpec, ...]) -> Self:
        return replace_fields(self, {"plan": plan, "specs": specs})

    def with_values(self, values: dict[str, Any]) -> Self:
        return replace_differing_fields(self, {"values": values})

    def without_schema(self) -> Self:
        return replace_fields(self, {"output_schema": None})


class Verdict(Record):
    """The decision of a policy engine on one proposal, and what the gate records of it. The model reads `reason`."""

    decision: Decision
    reason: str = ""
    tools: tuple[str, ...] | None = None
    """The tools of its config that a delegate may use, for a delegation. None: all of them."""
    arguments: dict[str, Any] | None = None
    """The arguments that policy or a person put in place of the model's. They were checked and judged again."""
    changed_by: str = ""
    """The person who changed the arguments. Empty if policy did."""
    approval: ApprovalTerms | None = None
    """The terms of `decision="approval"`."""
    policies: tuple[str, ...] = ()
    """Ids of the policies that decided."""
    version: str = ""
    """Version of the policy set."""
    permit: str = ""
    """The gate's signature on an allowed call, if workers have a key. Without it no worker carries out the call."""

    def missing_approval(self, request: GateRequest) -> ApprovalTerms | None:
        """Return the terms under which a person still has to approve the request, or None if nobody has to.

        An approval counts only from a person whom the terms allow, and only under the policy set of this verdict.
        """
        terms = self.approval or (ApprovalTerms() if self.decision == "approval" else None)
        if terms is None:
            return None
        approver = request.approver_under(self.version)
        is_approved = approver != "" and (not terms.approvers or approver in terms.approvers)
        return None if is_approved else terms

    def with_arguments(self, arguments: dict[str, Any] | None) -> Self:
        """Return the verdict with policy's arguments in place of the model's. None keeps the model's."""
        return replace_fields(self, {"arguments": arguments})

    def with_person_arguments(self, arguments: dict[str, Any], changed_by: str) -> Self:
        return replace_fields(self, {"arguments": arguments, "changed_by": changed_by})

    def with_reason(self, reason: str) -> Self:
        return replace_fields(self, {"reason": reason})

    def with_policies(self, policies: tuple[str, ...]) -> Self:
        return replace_fields(self, {"policies": policies})

    def with_permit(self, permit: str) -> Self:
        return replace_fields(self, {"permit": permit})

    def with_terms(self, terms: ApprovalTerms) -> Self:
        return replace_fields(self, {"approval": terms})

    def with_denial(self) -> Self:
        return replace_fields(self, {"decision": "deny", "arguments": None})


class Verdicts(Record):
    """Result of `gate`: one verdict for each call, in call order, or one for a final answer."""

    verdicts: tuple[Verdict, ...]
    places: tuple[str, ...] = ()
    """The place of each verdict, taken from the request: that of a call, the iteration of an answer, or `ending`. Empty
    for a request with only one place, because the activity's id names that place.
    """

    def by_place(self, activity_id: str) -> dict[str, Verdict] | None:
        """Return the verdicts by place. None if the places are unknown, or do not match the verdicts one to one.

        `activity_id` is that of the gate's own activity.
        """
        subject = gate_subject(activity_id)
        places = self.places or ((subject,) if is_one_place(subject) else ())
        verdicts = dict(zip(places, self.verdicts, strict=False))
        return verdicts if 0 < len(verdicts) == len(places) == len(self.verdicts) else None

    def with_verdicts(self, verdicts: tuple[Verdict, ...]) -> Self:
        """Return it with other verdicts on the same places."""
        return replace_fields(self, {"verdicts": verdicts})

    def for_places(self, places: Sequence[str]) -> tuple[Verdict, ...] | None:
        """Return the verdicts on exactly these places, in their order. None if they do not match."""
        verdicts = self.by_place(gate_id(places))
        if verdicts is None or verdicts.keys() != set(places):
            return None
        return tuple(verdicts[place] for place in places)


_GATE = ".gate"

_SEVERAL = ".*"
"""Ends the subject of a gate activity for several places. The subject begins with their common part, as in `5.*`."""


def several_calls_of(iteration: object) -> str:
    """Return the subject of the gate activity for several calls of an iteration."""
    return f"{iteration}{_SEVERAL}"


def gate_id(places: Sequence[str]) -> str:
    """Return the id of the activity that judges these places. The id names them even if the activity has no result."""
    subject = places[0] if len(places) == 1 else several_calls_of(places[0].rpartition(".")[0])
    return f"{subject}{_GATE}"


def gate_subject(activity_id: str) -> str:
    """Return the place of a gate activity, or `5.*` for several places. "" for another activity's id."""
    return activity_id.removesuffix(_GATE) if activity_id.endswith(_GATE) else ""


def is_one_place(subject: str) -> bool:
    """Return True if the subject of a gate activity is one place, not several."""
    return bool(subject) and not subject.endswith(_SEVERAL)


PERMIT_KEY = "ORGA_PERMIT_KEY"
"""The environment variable that holds the worker's keys, or names a file with them."""

NOT_PERMITTED = "NotPermitted"
"""Failure type of a call without a valid permit. Nothing was run."""

MAC_CHARS = 22
"""128 bits as base64url."""

START_SUFFIX = ".d0"
"""The end of the activity id that starts the work of a deferred tool. The id without it is that of the call's end."""

INPUT_SUFFIX = ".i"
"""Ends, with a number, the id of an activity that repeats a call with input from people."""

_INPUT_NUMBER = re.compile(rf"{re.escape(INPUT_SUFFIX)}\d+$")
_SAME_CALL_SUFFIX = re.compile(rf"(?:\.r\d+)?(?:{re.escape(START_SUFFIX)})?$")


def permit_terms(version: str, purpose: str, approver: str) -> str:
    """Return the terms that are signed with a call. In its permit they follow the signature."""
    return "|".join((version, "" if purpose == "reply" else purpose, approver)).rstrip("|")


def activity_id_before_input(activity_id: str) -> str:
    """Return the id without the number of a repetition with input (`.i1`)."""
    return _INPUT_NUMBER.sub("", activity_id, count=1)


def call_activity_id(activity_id: str) -> str:
    """Return a call's activity id without the suffixes of a retry (`.r1`), a start (`.d0`) and given input (`.i1`)."""
    return _SAME_CALL_SUFFIX.sub("", activity_id_before_input(activity_id), count=1)


def policy_text(engine: str, location: str, version: str) -> str:
    """Return a policy as memos and workers name it: its engine, a digest of its location, and its version."""
    return f"{engine}:{location}:{version}"


class _Policy(NamedTuple):
    """The parts of a text that `policy_text` returns. The text of an old worker has fewer parts."""

    engine: str
    location: str = ""
    version: str = ""


RULES = frozenset({"cedar", "opa", "code"})
"""Engines that evaluate configured rules, or rules in the application's code."""


def is_same_policy(worker: str, run: str) -> bool:
    """Return True if a worker's policy is that of a run. Both are as `policy_text` returns them, and "" is unknown.

    Rules with the same location are the same policy even after an edit. So are unchanged copies at another location.
    """
    if not worker or not run:
        return True
    own, wanted = _Policy(*worker.split(":")[:3]), _Policy(*run.split(":")[:3])
    if wanted.engine not in RULES:
        return not is_weaker_engine(own.engine, wanted.engine)
    has_same_version = own.version != "" and own.version == wanted.version
    return own.engine == wanted.engine and (own.location == wanted.location or has_same_version)


_STRENGTH = {"allow": 0, "default": 1, "cedar": 2, "opa": 2, "code": 2}
"""The strength of each engine. A stronger one may deny what a weaker one allows."""


def is_weaker_engine(engine: str, than: str) -> bool:
    """Return True if an engine is of a kind that checks less than another. False if one of the two is unknown."""
    strength, wanted = _STRENGTH.get(engine), _STRENGTH.get(than)
    return strength is not None and wanted is not None and strength < wanted
