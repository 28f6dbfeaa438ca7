"""What the gate is asked and what it answers.

Permits: what the gate has signed of a call, so that nothing carries out a call that the gate did not allow.

Policy engines by name, and which of them decides less than another.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal, Self

from orga.workflows.types.messages import ToolCall
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.tool_calls.delegation import DelegateSpec
from orga.workflows.types.tool_calls.tools import ToolSpec

Decision = Literal["allow", "deny", "invalid", "approval"]
"""`invalid`: refused before any policy was asked (unknown tool, arguments or an answer that do not fit); `approval`: a
person has to say yes first."""

Purpose = Literal["reply", "hydration", "fallback", "requeue", "saga", "compensation", "ending", "plan", "learning"]
"""What a call is for: the model's reply, a lookup before it, in place of one that failed, a dead letter sent again, a
step of a saga, taking one back; `ending`: text that a run without an answer would bring; `plan`: that of a goal;
`learning`: what a run stores at its end."""

RECONFIRMED_PURPOSES: frozenset[Purpose] = frozenset({"saga", "compensation", "requeue"})
"""What may be put to the gate anew: a saga foresees its steps, a letter that was not sent may be sent later."""

COMPENSATED_PURPOSES: frozenset[Purpose] = frozenset({"saga"})
"""What a later call may take back, which has to come behind it."""

UNCONFIRMED_PURPOSES: frozenset[Purpose] = frozenset({"compensation", "learning"})
"""What is carried out under its one verdict, since it goes on while a run is paused, or ends."""

ENDING = "ending"
"""The place of what a run would bring that ends without an answer."""

PLAN = "plan"
"""The place of a goal's plan."""

LEARNINGS = "learnings"
"""The place of what a run stores at its end."""

SEPARATE_PROPOSALS = frozenset({ENDING, PLAN, LEARNINGS})
"""Places of what is neither a call nor the answer of a reply."""


class ProposedStep(Record):
    """A step of a plan that waits for a verdict."""

    id: str
    skill: str
    """A tool, or an agent that may be delegated to."""
    goal: str
    arguments: dict[str, Any] | None = None
    """Of the call; None where they depend on what other steps bring."""
    depends_on: tuple[str, ...] = ()


class ApprovalTerms(Record):
    """Who may approve a call, and until when."""

    approvers: tuple[str, ...] = ()
    """Names that may decide; empty: anyone who may send updates to the run."""
    expires_s: float = 86_400.0
    """Seconds without a decision after which the call is denied."""

    def with_expiry(self, seconds: float) -> Self:
        """Return the terms with another time to decide."""
        return replace_fields(self, {"expires_s": seconds})


class GateRequest(Record):
    """Input of `gate`: the calls of one reply, the final answer, or the plan of a goal."""

    agent: str
    iteration: int
    engine: str = ""
    """The policy engine that the run began under."""
    calls: tuple[ToolCall, ...] = ()
    places: tuple[str, ...] = ()
    """Where each of `calls` is carried out: the ids of their activities, which permits are bound to; of an answer its
    iteration."""
    answer: str | None = None
    plan: tuple[ProposedStep, ...] = ()
    specs: tuple[ToolSpec, ...] = ()
    """The offered tools that `calls` or `plan` name."""
    offered: tuple[str, ...] = ()
    tenant: str | None = None
    trusted_context: dict[str, Any] = {}
    delegates: tuple[DelegateSpec, ...] = ()
    """Agents that a `delegate` call may name."""
    output_schema: dict[str, Any] | None = None
    """What `answer` has to fit."""
    purpose: Purpose = "reply"
    depth: int = 0
    """Delegations that lead to this run."""
    taint: tuple[str, ...] = ()
    """Tools whose untrusted content has entered the conversation."""
    left: dict[str, float] = {}
    """What is left of each budget that is limited: `iterations`, `tokens`, `cost_usd`, `time_s`, ..."""
    approved_by: str = ""
    """Who has approved the one proposal of this request, which is judged once more."""
    approved_version: str = ""
    """The version of the policy set that asked for the approval."""

    def with_approval(self, approver: str, version: str) -> Self:
        """Return the request as one that a person has said yes to; with nothing, as one that nobody has."""
        return replace_fields(self, {"approved_by": approver, "approved_version": version})

    def with_calls(self, calls: tuple[ToolCall, ...]) -> Self:
        """Return the request about other calls."""
        return replace_fields(self, {"calls": calls})

    def with_plan(self, plan: tuple[ProposedStep, ...], specs: tuple[ToolSpec, ...]) -> Self:
        """Return the request about a plan, whose tools these are."""
        return replace_fields(self, {"plan": plan, "specs": specs})

    def without_schema(self) -> Self:
        """Return the request about a text that has to fit no schema."""
        return replace_fields(self, {"output_schema": None})


class Verdict(Record):
    """The decision on one proposal; `reason` is what the model is told."""

    decision: Decision
    reason: str = ""
    tools: tuple[str, ...] | None = None
    """Of an allowed delegation: the most that the other agent may use; None leaves it all of its own."""
    arguments: dict[str, Any] | None = None
    """The arguments that policy put in place of the model's; they were checked and judged again."""
    approval: ApprovalTerms | None = None
    policies: tuple[str, ...] = ()
    """Ids of the policies that decided."""
    version: str = ""
    """Of the policy set."""
    permit: str = ""
    """The gate's signature on an allowed call, where workers have a key: without it no worker carries the call out."""

    def with_arguments(self, arguments: dict[str, Any] | None) -> Self:
        """Return the verdict with arguments in place of the model's; None leaves it those."""
        return replace_fields(self, {"arguments": arguments})

    def with_permit(self, permit: str) -> Self:
        """Return the verdict, signed."""
        return replace_fields(self, {"permit": permit})

    def with_terms(self, terms: ApprovalTerms) -> Self:
        """Return the verdict with other terms of its approval."""
        return replace_fields(self, {"approval": terms})

    def with_denial(self) -> Self:
        """Return the verdict as a denial, for the reason that it has."""
        return replace_fields(self, {"decision": "deny", "arguments": None})


class Verdicts(Record):
    """Result of `gate`: one verdict for each call, in call order; one for a final answer."""

    verdicts: tuple[Verdict, ...]
    places: tuple[str, ...] = ()
    """What each verdict is about, as the request names it: the place of a call, the iteration of an answer, `ending`.
    The gate puts it there itself, never a policy. Of a request about one thing the activity's id says it."""

    def by_place(self, activity_id: str) -> dict[str, Verdict] | None:
        """Return the verdicts by what they are about; None where it is not said, or one thing has not just one."""
        about = gate_subject(activity_id)
        places = self.places or ((about,) if is_activity_id(about) else ())
        found = dict(zip(places, self.verdicts, strict=False))
        return found if found and len(found) == len(places) == len(self.verdicts) else None

    def with_verdicts(self, verdicts: tuple[Verdict, ...]) -> Self:
        """Return others in their place, about the same."""
        return replace_fields(self, {"verdicts": verdicts})

    def on(self, places: Sequence[str]) -> tuple[Verdict, ...] | None:
        """Return the verdicts on just these places that were asked about, in their order; None where they are not."""
        found = self.by_place(gate_id(places))
        return tuple(found[place] for place in places) if found is not None and found.keys() == set(places) else None


_GATE = ".gate"

SEVERAL = "{}.*"
"""Stands for several calls of a reply, or steps of a saga: what their places begin with."""


def gate_id(places: Sequence[str]) -> str:
    """Return the id of the activity that judges these: it tells what was asked about where there is no result."""
    one = places[0]
    return f"{one if len(places) == 1 else SEVERAL.format(one.rpartition('.')[0])}{_GATE}"


def gate_subject(activity_id: str) -> str:
    """Return what a gate was asked about, one place or `SEVERAL`; "" where the id is another's."""
    return activity_id.removesuffix(_GATE) if activity_id.endswith(_GATE) else ""


def is_activity_id(about: str) -> bool:
    """Return whether this is one place."""
    return bool(about) and not about.endswith(SEVERAL.format(""))


PERMIT_KEY = "ORGA_PERMIT_KEY"
"""The variable that holds the worker's keys, or names a file with them."""

NOT_PERMITTED = "NotPermitted"
"""Type of the failure of a call without a valid permit: nothing was run."""

MAC_CHARS = 22
"""128 bits as base64url."""

_RETRY_SUFFIX = re.compile(r"\.r\d+$")


def permit_text(signature: str, version: str, purpose: str, approver: str) -> str:
    """Return what a call brings along: the signature, then the terms that it covers and that the call itself lacks."""
    terms = "|".join((version, "" if purpose == "reply" else purpose, approver)).rstrip("|")
    return f"{signature}{terms}" if signature else ""


def call_activity_id(activity_id: str) -> str:
    """Return the place of a call; one that a person has tried once more (`.r1`) stands where it stood."""
    return _RETRY_SUFFIX.sub("", activity_id)


def policy_text(engine: str, place: str, version: str) -> str:
    """Return a policy as memos and workers name it: its engine, a digest of where its rules are, and their version."""
    return f"{engine}:{place}:{version}"


def is_same_policy(worker: str, run: str) -> bool:
    """Return whether a worker judges by the policy of a run, both as `policy_text` returns them; "" is unknown.

    Rules stay the same policy when they are edited where they are, and when they are copied as they are.
    """
    if not worker or not run:
        return True
    engine, place, version = (*worker.split(":"), "", "")[:3]
    wanted, wanted_place, wanted_version = (*run.split(":"), "", "")[:3]
    if wanted not in RULES:
        return not is_weaker_engine(engine, wanted)
    return engine == wanted and (place == wanted_place or (bool(version) and version == wanted_version))


RULES = frozenset({"cedar", "opa"})
"""Engines that judge by rules of their own."""

_STRENGTH = {"allow": 0, "default": 1, "cedar": 2, "opa": 2}


def is_weaker_engine(engine: str, than: str) -> bool:
    """Say whether an engine may let through what another one turns down, by its kind; of an unknown one nothing is."""
    strength, wanted = _STRENGTH.get(engine), _STRENGTH.get(than)
    return strength is not None and wanted is not None and strength < wanted
