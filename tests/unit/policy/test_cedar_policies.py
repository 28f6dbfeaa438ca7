"""Decisions of Cedar policies: default deny, forbid wins, errors deny, approval, narrowing, ids, surfaces."""

import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.policy.cedar import CedarPolicies
from orga.activities.adapters.problem import BrokenPolicies
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolSpec
from tests.support.values.policies import PERMIT_ALL, a_folder, a_plan_proposal, a_tool_proposal, an_answer

READING = """@id("reading") permit (principal, action == Action::"tool_call", resource)
when { resource.effect == "read_only" };
"""
NOBODY = '@id("nobody") forbid (principal, action, resource);'


async def judged(root: Path, text: str, proposal: GateRequest | None = None) -> Verdict:
    """Return the decision of one file of policies."""
    return await CedarPolicies(a_folder(root, policies=text)).judge(proposal or a_tool_proposal())


def when(condition: str) -> str:
    """Return a set that permits exactly under this condition."""
    return f'@id("it") permit (principal, action == Action::"tool_call", resource) when {{ {condition} }};'


def a_delegation(agent: Any = "researcher") -> GateRequest:
    call = ToolCall(call_id="c1", name="delegate", arguments={"agent": agent, "task": "t"})
    return GateRequest(agent="lead", iteration=1, calls=(call,))


def an_end() -> GateRequest:
    return GateRequest(
        agent="a", iteration=1, calls=(ToolCall(call_id="c1", name="terminate", arguments={"reason": "done"}),)
    )


@pytest.mark.parametrize(
    ("text", "proposal", "allowed", "policies"),
    [
        pytest.param("", a_tool_proposal(), False, (), id="an empty set denies"),
        pytest.param("", an_answer(), False, (), id="an empty set also denies answers"),
        pytest.param("// nothing\n", a_tool_proposal(), False, (), id="a comment is no policy"),
        pytest.param(READING, a_tool_proposal(), True, ("reading",), id="a permitted call is allowed"),
        pytest.param(READING, a_tool_proposal(effect="irreversible"), False, (), id="other calls are denied"),
        pytest.param(READING, an_answer(), False, (), id="a permit of calls permits no answer"),
        pytest.param(PERMIT_ALL + NOBODY, a_tool_proposal(), False, ("nobody",), id="forbid wins"),
        pytest.param(NOBODY + PERMIT_ALL, a_tool_proposal(), False, ("nobody",), id="forbid wins in any order"),
        pytest.param(PERMIT_ALL + READING, a_tool_proposal(), True, ("all", "reading"), id="all are named"),
        pytest.param(PERMIT_ALL + "@inactive " + NOBODY, a_tool_proposal(), True, ("all",), id="an inactive one"),
        pytest.param(
            "permit (principal, action, resource);", a_tool_proposal(), True, ("policies/policies.cedar:1",),
            id="a policy without an id is named by its place",
        ),
        pytest.param(
            'permit (principal == Agent::"lead", action, resource);', a_tool_proposal(), False, (), id="another agent"
        ),
        pytest.param(
            '@id("d") permit (principal, action == Action::"delegate", resource == Agent::"researcher");',
            a_delegation(), True, ("d",), id="a delegation is about the other agent",
        ),
        pytest.param(
            'permit (principal, action == Action::"delegate", resource == Agent::"researcher");',
            a_delegation(["researcher"]), False, (), id="a delegation to an invalid name",
        ),
        pytest.param(
            'permit (principal, action == Action::"tool_call", resource);', a_delegation(), False, (),
            id="a delegation is no tool call",
        ),
        pytest.param(
            '@id("p") permit (principal, action == Action::"plan", resource == Run::"this");',
            a_plan_proposal(look=None), True, ("p",), id="a plan is about the run",
        ),
        pytest.param(
            'permit (principal, action == Action::"respond", resource);', a_plan_proposal(look=None), False, (),
            id="a plan is no answer",
        ),
        pytest.param(
            '@id("t") permit (principal, action == Action::"terminate", resource == Run::"this");', an_end(), True,
            ("t",), id="a run may end itself",
        ),
    ],
)  # fmt: skip
async def test_a_set_of_policies_decides(
    tmp_path: Path, text: str, proposal: GateRequest, allowed: bool, policies: tuple[str, ...]
) -> None:
    found = await judged(tmp_path, text, proposal)
    assert (found.decision != "deny", found.policies) == (allowed, policies)


@pytest.mark.parametrize(
    ("condition", "fields", "allowed"),
    [
        pytest.param('resource.name like "read_*"', {}, True, id="the tool's name"),
        pytest.param('resource.tags.contains("pii")', {"tags": ("pii",)}, True, id="a tag"),
        pytest.param('resource.tags.contains("pii")', {}, False, id="no tag"),
        pytest.param("resource.verified", {"verified": True}, True, id="a verified tool"),
        pytest.param("!resource.approval", {"approval": True}, False, id="a tool marked for approval"),
        pytest.param("context.iteration < 3", {"iteration": 2}, True, id="an early iteration"),
        pytest.param("context.iteration < 3", {"iteration": 3}, False, id="a late iteration"),
        pytest.param("context.depth == 0", {"depth": 1}, False, id="a delegated run"),
        pytest.param(
            "context.left has tokens && context.left.tokens > 99", {"left": {"tokens": 99.9}}, False, id="rounded down"
        ),
        pytest.param("context.left has tokens", {}, False, id="an unlimited budget"),
        pytest.param(
            'context.left has cost_usd && context.left.cost_usd.lessThan(decimal("0.5"))',
            {"left": {"cost_usd": 0.49999999}}, True, id="money of many places",
        ),
        pytest.param('context has tenant && context.tenant == "acme"', {"tenant": "acme"}, True, id="the tenant"),
        pytest.param("context has tenant", {}, False, id="no tenant"),
        pytest.param("context.tainted", {"taint": ("fetch_url",)}, True, id="tainted"),
        pytest.param("context.tainted", {}, False, id="clean"),
        pytest.param('context.taint.contains("fetch_url")', {"taint": ("fetch_url",)}, True, id="tainted by a page"),
        pytest.param('context.purpose == "reply"', {"purpose": "hydration"}, False, id="a lookup"),
        pytest.param(
            "context.trusted has user.role && context.trusted.user.role == \"boss\"",
            {"trusted_context": {"user": {"role": "boss"}}}, True, id="a nested trusted fact",
        ),
        pytest.param("context.trusted has role", {"arguments": {"role": "boss"}}, False, id="not a claimed fact"),
        pytest.param("context.arguments has n && context.arguments.n > 3", {"arguments": {"n": 4}}, True, id="n"),
        pytest.param("context.arguments has n", {"arguments": {"n": None}}, False, id="null is none"),
        pytest.param("context.arguments has n", {"arguments": {"n": 1e300}}, True, id="present with any value"),
        pytest.param(
            'context.arguments has l && context.arguments.l.contains("a")', {"arguments": {"l": ["b", "a"]}}, True,
            id="a list",
        ),
        pytest.param(
            'context.arguments has "a-b" && context.arguments["a-b"] == "c"', {"arguments": {"a-b": "c"}}, True,
            id="an odd name",
        ),
        pytest.param("context.arguments has b && context.arguments.b", {"arguments": {"b": True}}, True, id="boolean"),
        pytest.param(
            'context.arguments has o && context.arguments.o == {"a": 1}', {"arguments": {"o": {"a": 1, "b": 2}}}, False,
            id="an object as a whole",
        ),
    ],
)  # fmt: skip
async def test_a_condition_can_use(tmp_path: Path, condition: str, fields: dict[str, Any], allowed: bool) -> None:
    found = await judged(tmp_path, when(condition), a_tool_proposal(**fields))
    assert (found.decision != "deny", found.reason) == (
        allowed,
        "" if allowed else "no policy permits read_file for agent default",
    )


@pytest.mark.parametrize(
    ("condition", "allowed"),
    [
        pytest.param("context.plan.steps == 2", True, id="the number of steps"),
        pytest.param('context.plan.skills == ["look", "scout"]', True, id="the skills of its steps"),
        pytest.param('context.plan.skills.contains("pay")', False, id="no other skill"),
        pytest.param('context.plan.effects.contains("irreversible")', True, id="an agent counts as irreversible"),
        pytest.param('context.plan.tags.contains("web")', True, id="a tag of a tool"),
    ],
)
async def test_a_condition_can_use_a_plan(tmp_path: Path, condition: str, allowed: bool) -> None:
    look = ToolSpec(name="look", effect="read_only", options=ToolOptions(tags=("web",)))
    text = f'permit (principal, action == Action::"plan", resource) when {{ context has plan && {condition} }};'
    found = await judged(tmp_path, text, a_plan_proposal(look, look={"at": 1}, scout=None))
    reason = "" if allowed else "no policy permits this plan of default"
    assert (found.decision != "deny", found.reason) == (allowed, reason)


@pytest.mark.parametrize(
    ("schema", "amount", "allowed"),
    [
        pytest.param("number", 50, True, id="an integer for a number"),
        pytest.param("number", 50.0, True, id="a decimal"),
        pytest.param("number", 50.0001, False, id="the last significant place"),
        pytest.param(["number", "null"], 50, True, id="a nullable number"),
    ],
)
async def test_the_schema_of_a_tool_determines_decimals(
    tmp_path: Path, schema: Any, amount: float, allowed: bool
) -> None:
    text = when('context.arguments has a && context.arguments.a.lessThanOrEqual(decimal("50.0"))')
    parameters = {"type": "object", "properties": {"a": {"type": schema}}}
    found = await judged(tmp_path, text, a_tool_proposal(arguments={"a": amount}, parameters=parameters))
    assert (found.decision != "deny", "cannot judge" in found.reason) == (allowed, False)


LARGE = "forbid (principal, action, resource) when { context.arguments has n && context.arguments.n > 100 };"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        pytest.param("many", "type error: expected long, got string", id="text for a number"),
        pytest.param(1.5, "type error: expected long, got decimal", id="a decimal for a number"),
        pytest.param(2**63, "whole numbers of Cedar end at", id="beyond Cedar's numbers"),
        pytest.param(1.00001, "decimals of Cedar have four places", id="too many places"),
        pytest.param(float("nan"), "decimals of Cedar", id="no number"),
        pytest.param([None], "has no form for", id="null in a list"),
        pytest.param(
            {"__entity": {"type": "Agent", "id": "x"}}, "has the key '__entity'", id="what is an entity to Cedar"
        ),
        pytest.param(
            {"__extn": {"fn": "decimal", "arg": "1.0"}}, "has the key '__extn'", id="what is a function to Cedar"
        ),
    ],
)
async def test_a_value_that_cedar_cannot_represent_is_denied(tmp_path: Path, value: Any, says: str) -> None:
    """Cedar itself would skip a failing policy and allow the call."""
    found = await judged(tmp_path, PERMIT_ALL + LARGE, a_tool_proposal(arguments={"n": value}))
    assert found.decision == "deny"
    assert says in found.reason


async def test_values_that_no_policy_names_do_not_matter(tmp_path: Path) -> None:
    odd = {"n": 3, "x": 2**99, "y": [None], "z": {"__entity": 1}, "lat": 52.520008}
    assert (await judged(tmp_path, PERMIT_ALL + LARGE, a_tool_proposal(arguments=odd))).decision != "deny"


ASKING = (
    '@id("ask") @approval("alice, bob") @expires("30m") @reason("it is risky") permit (principal, action, resource);'
)
ANYONE = '@id("anyone") @approval("") permit (principal, action, resource);'
LIFTED = '@id("lift") @approval("bob,carol") @expires("2h") forbid (principal, action, resource);'


@pytest.mark.parametrize(
    ("text", "terms", "policies"),
    [
        pytest.param(
            ASKING, ApprovalTerms(approvers=("alice", "bob"), expires_s=1_800), ("ask",), id="a permit that asks"
        ),
        pytest.param(ANYONE, ApprovalTerms(), ("anyone",), id="for anyone, a day"),
        pytest.param(ASKING + PERMIT_ALL, None, ("ask", "all"), id="a plain permit wins"),
        pytest.param(
            ASKING + ANYONE, ApprovalTerms(expires_s=1_800), ("ask", "anyone"), id="either is enough, shorter time"
        ),
        pytest.param(
            LIFTED + PERMIT_ALL, ApprovalTerms(approvers=("bob", "carol"), expires_s=7_200), ("lift", "all"),
            id="a forbid that an approval lifts",
        ),
        pytest.param(
            LIFTED + ASKING, ApprovalTerms(approvers=("bob",), expires_s=1_800), ("lift", "ask"),
            id="approvers of both",
        ),
    ],
)  # fmt: skip
async def test_a_policy_can_require_an_approval(
    tmp_path: Path, text: str, terms: ApprovalTerms | None, policies: tuple[str, ...]
) -> None:
    found = await judged(tmp_path, text)
    assert (found.decision != "deny", found.approval, found.policies) == (True, terms, policies)


async def test_the_approver_sees_the_reasons(tmp_path: Path) -> None:
    assert (await judged(tmp_path, LIFTED + ASKING)).reason == "policy lift; ask: it is risky"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(LIFTED, "no policy permits read_file for agent default", id="lifting a forbid permits nothing"),
        pytest.param(LIFTED + PERMIT_ALL + NOBODY, "forbidden by policy lift; nobody", id="a forbid without approval"),
        pytest.param(
            LIFTED + ASKING.replace("alice, bob", "alice"),
            "no one person may approve this: lift; ask: it is risky name different approvers",
            id="no common approver",
        ),
    ],
)
async def test_some_proposals_cannot_be_approved(tmp_path: Path, text: str, reason: str) -> None:
    found = await judged(tmp_path, text)
    assert (found.decision != "deny", found.approval, found.reason) == (False, None, reason)


@pytest.mark.parametrize(
    ("is_current", "allowed"),
    [pytest.param(True, True, id="under this set"), pytest.param(False, False, id="under another set")],
)
async def test_an_approval_is_visible_only_under_the_set_that_required_it(
    tmp_path: Path, is_current: bool, allowed: bool
) -> None:
    engine = CedarPolicies(a_folder(tmp_path, a=when("context has approved_by")))
    version = engine.version if is_current else "another"
    found = await engine.judge(a_tool_proposal(approved_by="alice", approved_version=version))
    assert (found.decision != "deny") is allowed


@pytest.mark.parametrize(
    ("lists", "tools"),
    [
        pytest.param(['@tools("read_file, search_text")'], ("read_file", "search_text"), id="one list"),
        pytest.param(['@tools("a,b,c")', '@tools("c,b")'], ("b", "c"), id="the tools of all lists"),
        pytest.param(['@tools("a,b")', ""], ("a", "b"), id="a permit without a list adds nothing"),
        pytest.param(['@tools("")'], (), id="none at all"),
        pytest.param([""], None, id="no list"),
    ],
)
async def test_a_delegation_is_narrowed(tmp_path: Path, lists: list[str], tools: tuple[str, ...] | None) -> None:
    permits = [f'{tools} permit (principal, action == Action::"delegate", resource);' for tools in lists]
    assert (await judged(tmp_path, "\n".join(permits), a_delegation())).tools == tools


async def test_shared_policies_apply_everywhere_and_those_of_a_surface_only_there(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, shared=READING, prod__strict=NOBODY, dev__loose=PERMIT_ALL)
    act = a_tool_proposal(effect="irreversible")
    seen = {
        surface: [(await CedarPolicies(folder, surface).judge(p)).decision != "deny" for p in (a_tool_proposal(), act)]
        for surface in (None, "prod", "dev")
    }
    assert seen == {None: [True, False], "prod": [False, False], "dev": [True, True]}


async def test_every_verdict_has_the_version_of_its_set(tmp_path: Path) -> None:
    one, two = CedarPolicies(a_folder(tmp_path, a=READING)), CedarPolicies(a_folder(tmp_path, a=READING + "\n"))
    found = [await engine.judge(p) for engine in (one, two) for p in (a_tool_proposal(), an_answer())]
    assert [judgement.version for judgement in found] == [one.version] * 2 + [two.version] * 2
    assert one.version != two.version


async def test_the_version_does_not_depend_on_the_folder(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    folders = [a_folder(tmp_path / "here", a=READING), a_folder(tmp_path / "there", a=READING).rename(tmp_path / "x")]
    assert len({CedarPolicies(folder).version for folder in folders}) == 1


async def test_a_decision_takes_less_than_a_millisecond(tmp_path: Path) -> None:
    """It takes a tenth of that with thirty policies. The limit is wide for busy machines."""
    many = "".join(READING.replace('"reading"', f'"reading-{n}"') for n in range(20))
    engine = CedarPolicies(a_folder(tmp_path, a=many + LARGE))
    proposal = a_tool_proposal(arguments={"n": 4, "content": "x" * 1_000_000})
    took: list[float] = []
    for _ in range(200):
        begun = time.perf_counter()
        assert (await engine.judge(proposal)).decision != "deny"
        took.append(time.perf_counter() - begun)
    assert statistics.median(took) < 0.001


@pytest.mark.parametrize(
    ("total", "allowed"),
    [
        (12, True),
        (12.5, True),
        ("12.50", True),
        (60, False),
        ("60", False),
        ("12 EUR", False),
        (True, False),
        (None, False),
    ],
)
async def test_a_value_of_a_tool_is_judged_by_the_type_of_its_use(tmp_path: Path, total: Any, allowed: bool) -> None:
    has = "context.values has get && context.values.get has total"
    text = when(f'{has} && context.values.get.total.lessThan(decimal("50.0"))')
    verdict = await judged(tmp_path, text, a_tool_proposal(values={"get": {"total": total}}))
    assert (verdict.decision == "allow") is allowed


async def test_a_policy_without_the_check_for_a_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenPolicies, match="may be missing"):
        await judged(tmp_path, when("context.values.get == 1"))
