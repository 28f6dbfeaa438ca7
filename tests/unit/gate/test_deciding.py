"""The tool `decide`: who gets it, what a call decides, and how a run without its required decision ends."""

from typing import Any

import pytest

from orga.activities.adapters.agents.agent_problems import agent_problems
from orga.activities.adapters.agents.agents import ConfiguredAgents, with_default_agent
from orga.activities.adapters.agents.offered_tools import decide_tool
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.adapters.tools.catalog import ToolCatalog
from orga.client.cli.shown.narration import entry_lines
from orga.client.journal.run_view import RunView
from orga.client.proof.replay import decision_fault
from orga.testing import FakeTool, answers
from orga.workflows.decisions.fork import fork_state, state_before_past, with_past
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.decisions.result import result_data
from orga.workflows.decisions.tool_calls.calls import not_run_outcome
from orga.workflows.decisions.tool_calls.decision import decision_of_call, with_decision, with_undecided_answer
from orga.workflows.decisions.tool_calls.dispatch import unstarted_outcomes
from orga.workflows.decisions.tool_calls.saga import saga_problem
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.input import AgentInput, LoopConfig
from orga.workflows.types.messages import Reply
from orga.workflows.types.past import Fork, ForkedFrom, ForkInput
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.setup import PrepareRequest
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import Happening, JournalEntry
from orga.workflows.types.tool_calls.decision import GroundedDecision
from orga.workflows.types.tool_calls.loop_tools import SagaStep
from tests.support.runs.decisions import FREE, a_decision, proposal, routing_decision, the_triage, triage_fields
from tests.support.values.core import T0, a_call, a_request, a_setup, a_spec, a_state, at, user

ROUTE = routing_decision()
TOOLS = {"read_file": a_spec("read_file"), "write": a_spec("write")}
TRIAGE = the_triage()
OPTIONAL = AgentConfig.model_validate({"tools": ["read_file"], "decisions": {"small": a_decision()}})
AGENTS = {"triage": TRIAGE, "optional": OPTIONAL, "idle": AgentConfig(tools=("read_file", "decide"))}
TWO = decide_tool({"route": ROUTE, "small": GroundedDecision.model_validate(a_decision())})


def a_run(decision: GroundedDecision = ROUTE, **fields: Any) -> AgentState:
    """Return a run that has to decide, with these `fields` of its state and parts of its `setup`."""
    setup = a_setup(decisions={"route": decision}, **fields.pop("setup", {}))
    return a_state(input=AgentInput(task="t", trusted_context=FREE), setup=setup, **fields)


def after(state: AgentState, severity: str = "medium", **more: Any) -> AgentState:
    return with_decision(
        state, "1.0", *decision_of_call(state, a_call("decide", **proposal(triage_fields(severity), **more)))
    )


async def offered(agent: str, **fields: Any) -> tuple[list[str], list[str]]:
    configured = ConfiguredAgents(AGENTS, TOOLS, "scripted:model", lambda model: None, a_setup())
    setup = await configured.setup(PrepareRequest.model_validate({"agent": agent, **fields}))
    return [tool.name for tool in setup.tools], list(setup.decisions)


@pytest.mark.parametrize(
    ("agent", "fields", "expected"),
    [
        pytest.param("triage", {}, (["read_file", "decide"], ["route"]), id="declared"),
        pytest.param("triage", {"tools": ("decide",)}, (["decide"], ["route"]), id="chosen by the run"),
        pytest.param("optional", {"tools": ("read_file",)}, (["read_file"], list[str]()), id="left out by the run"),
    ],
)
async def test_decide_is_offered_if_a_decision_is_declared(agent: str, fields: dict[str, Any], expected: Any) -> None:
    assert await offered(agent, **fields) == expected


@pytest.mark.parametrize(
    ("agent", "fields", "says"),
    [
        pytest.param("triage", {"tools": ("read_file",)}, "route has to be decided", id="left out of the run's tools"),
        pytest.param("triage", {"ceiling": {"tools": ("read_file",)}}, "leave the run the tool 'decide'", id="ceiling"),
        pytest.param(
            "triage", {"config": {"tool_profile": {"exclude": ["dec*"]}}}, "route has to be decided", id="a profile"
        ),
        pytest.param("idle", {}, "declare it in agents.idle.decisions", id="listed without a decision"),
    ],
)
async def test_a_run_that_cannot_decide_is_refused(agent: str, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await offered(agent, **fields)
    assert says in str(caught.value)


def test_obstacles_to_a_decision_are_found_by_the_check() -> None:
    lead = AgentConfig.model_validate({"delegates": [{"agent": "triage", "tools": ["read_file"]}, "optional"]})
    found = agent_problems(
        with_default_agent({**AGENTS, "lead": lead}), TOOLS | dict.fromkeys(["list_files", "search_text"], a_spec())
    )
    assert [(each.place, each.problem, each.remedy) for each in found] == [
        ("agents.idle.tools", "there is nothing to decide", "declare it in agents.idle.decisions"),
        ("agents.lead.delegates.0.tools", "agent triage has to decide, but these tools do not let it", "add 'decide'"),
    ]


def test_the_name_decide_is_reserved() -> None:
    with pytest.raises(ValueError, match="'decide', a name that belongs to the loop"):
        ToolCatalog([FakeTool("decide")])


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        pytest.param(proposal(triage_fields()), True, id="valid fields"),
        pytest.param(proposal(triage_fields(), rationale="it is slow"), True, id="with a reason"),
        pytest.param({"decision": "small", "fields": {"size": "s", "count": 0}}, True, id="another decision"),
        pytest.param(proposal({"size": "s"}), False, id="fields of another decision"),
        pytest.param(proposal(triage_fields("worst")), False, id="a value outside the enum"),
        pytest.param(proposal(triage_fields() | {"alert": True}), False, id="a fact among the fields"),
        pytest.param(proposal(triage_fields() | {"workaround": "true"}), False, id="a boolean as a string"),
        pytest.param(proposal(triage_fields(users=-1)), False, id="a number out of bounds"),
        pytest.param(proposal(triage_fields(), outcome="critical"), False, id="an outcome"),
        pytest.param(proposal(triage_fields()) | {"decision": "other"}, False, id="no decision"),
        pytest.param({"decision": "route"}, False, id="no fields"),
    ],
)
def test_the_gate_accepts_only_valid_fields(arguments: dict[str, Any], fits: bool) -> None:
    assert (argument_errors(TWO.parameters, arguments) == []) == fits


def test_the_rationale_is_the_only_free_text() -> None:
    texts = [
        name
        for shape in TWO.parameters["properties"]["fields"]["anyOf"]
        for name, kind in shape["properties"].items()
        if kind["type"] == "string" and "enum" not in kind
    ]
    assert texts == []
    assert [name for name, kind in TWO.parameters["properties"].items() if "enum" not in kind] == [
        "fields",
        "rationale",
    ]


def test_a_decision_is_final() -> None:
    state = after(a_run())
    with pytest.raises(ValueError, match=r"is final: severity = medium, page = nobody \(rule: 5\)"):
        decision_of_call(state, a_call("decide", **proposal(triage_fields("low"))))


def test_a_revisable_decision_can_be_made_again() -> None:
    state = after(after(a_run(ROUTE.model_copy(update={"revisable": True}))), "low")
    assert (state.decided["route"].rule, state.decided["route"].revision) == ("default", 1)
    assert [note.data.get("revision") for note in state.notes] == [None, 1]


@pytest.mark.parametrize("arguments", [{}, {"decision": 5}, {"decision": "other"}, {"decision": "route", "fields": []}])
def test_a_call_without_a_valid_decision_is_refused(arguments: dict[str, Any]) -> None:
    """The gate allows none of these. If a policy replaced the arguments, the rules still hold."""
    with pytest.raises(ValueError, match=r"no such decision; there are: route|is missing"):
        decision_of_call(a_run(), a_call("decide", **arguments))


def test_the_rationale_is_cut_and_kept() -> None:
    state = after(a_run(), rationale="x" * 999)
    assert state.decided["route"].rationale == "x" * 300
    assert state.notes[0].data["rationale"] == "x" * 300


def test_the_third_answer_before_the_decision_ends_the_run_with_an_error() -> None:
    state = a_run()
    for _ in range(2):
        state = with_undecided_answer(state, answers())
        assert state.stop is None
        assert "decision 'route'" in state.conversation.messages[-1].text
    state = with_undecided_answer(state, answers("paged"))
    assert state.stop == ("error", "the required decision was not made: route")
    assert state.output == ""


def test_only_required_undecided_decisions_are_due() -> None:
    assert a_run().due_decisions == ("route",)
    assert a_run(ROUTE.model_copy(update={"required": False})).due_decisions == ()
    assert after(a_run()).due_decisions == ()
    assert a_state().due_decisions == ()


@pytest.mark.parametrize(
    ("state", "keys"),
    [
        pytest.param(after(a_run(data={"a": 1})), {"decisions"}, id="only decisions"),
        pytest.param(
            after(a_run(data={"a": 1}, setup={"output_schema": {}})), {"answer", "decisions"}, id="and an answer"
        ),
        pytest.param(a_run(), {"decisions"}, id="none made"),
        pytest.param(a_state(data={"a": 1}, setup=a_setup()), {"a"}, id="none declared"),
    ],
)
def test_the_data_of_a_result_contains_the_decisions(state: AgentState, keys: set[str]) -> None:
    assert set(result_data(state)) == keys


def test_a_fork_decides_again() -> None:
    """Its facts may differ, so a decision based on the facts of another run is not its own."""
    fork_input = ForkInput(fork=Fork(workflow_id="w", iteration=1))
    source = ForkedFrom(workflow_id="w", run_id="r", iteration=1)
    fork = with_past(
        state_before_past(fork_input, "other", T0), fork_state(after(a_run(undecided=2)), source, fork_input, T0)
    )
    assert (fork.decided, fork.undecided) == ({}, 0)


def test_decide_cannot_be_part_of_a_saga() -> None:
    """A compensation could not undo it."""
    step = SagaStep(tool="decide", kind="read_only")
    assert saga_problem(a_run(), [step]) == "step 1 (decide): decide cannot be part of a saga"


def test_decide_does_not_count_against_max_tool_calls() -> None:
    state = a_run(setup={"config": LoopConfig(max_tool_calls=0)})
    assert list(unstarted_outcomes(state, {0: a_call("read"), 1: a_call("decide")})) == [0]


def happened(decision: AgentState) -> list[JournalEntry]:
    fold = JournalFold()
    request = a_request((user("t"),), a_setup()).model_dump(mode="json")
    reply = Reply.of(calls=(a_call("decide"),)).model_dump(mode="json")
    notes = [note.model_dump(mode="json") for note in decision.notes]
    happenings = [
        Happening("scheduled", at(0), 1, name="reason", key="1", value=request),
        Happening("finished", at(1), 2, name="reason", key="1", value=reply),
        Happening("finished", at(2), 3, name="gate", value={"verdicts": [{"decision": "allow"}], "places": ["1.0"]}),
        *([Happening("noted", at(3), 4, value=notes)] if notes else []),
    ]
    return [entry for happening in happenings for entry in fold.feed(happening)]


def test_the_journal_records_the_decision_with_its_grounds() -> None:
    *_, entry, collected = happened(after(a_run(taint=("read_file",)), "critical"))
    assert entry.event == "DecisionGrounded"
    assert entry.data["outcome"] == {"severity": "high", "page": "support"}
    assert entry.data["facts"]["tainted"] == {"value": True, "source": "read_file"}
    assert collected.data["outcomes"] == [{"tool": "decide", "call_id": "c1", "outcome": "ok"}]
    assert [line.text for line in entry_lines(RunView().take(entry))] == [
        "✓ decided route: severity=high, page=support (rule: capped)"
    ]


def test_a_call_that_decided_nothing_is_recorded_as_not_run() -> None:
    assert not_run_outcome(a_call("decide"), "why").status == "not_run"
    assert happened(a_run())[-1].event == "ToolsDispatched"


@pytest.mark.parametrize(
    ("recorded", "made", "fault"),
    [
        pytest.param(["a"], ["a"], "", id="the same"),
        pytest.param(["a"], ["a", "b"], "", id="one that is not recorded yet"),
        pytest.param(["a", "b"], ["a"], "decision 2 (b): today's code makes no such decision", id="one too many"),
        pytest.param(["a"], ["b"], "decision 1 (a): today's code decides otherwise, first in decision", id="other"),
    ],
)
def test_a_replay_reports_differences_in_recorded_decisions(recorded: list[str], made: list[str], fault: str) -> None:
    assert decision_fault([{"decision": name} for name in recorded], [{"decision": name} for name in made]) == fault
