"""Each state of a goal with each intervention, running and paused: nothing is lost or repeated, and it ends once.

One worker runs all goals at once. Each goal goes through all states and gets one intervention in one of them.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError

from orga.testing import FakeTool
from tests.support.model.staged import TURNS, Staged, StagedModel
from tests.support.runs.goals import EndedGoal, answer_goal, goal_status, start, wait_for_goal
from tests.support.runs.loop import Loop, a_loop
from tests.support.runs.questions import send_update, wait_for_question
from tests.support.runs.waits import wait_until_paused

pytestmark = pytest.mark.timeout(600)

STATES = ("plan", "execute", "evaluate", "compress", "decide", "ask", "summary")
ACTS = ("pause", "resume", "steer", "add_context", "override_step", "answer", "abort", "extend_budget", "cancel")
ENDS = {"abort": "enough", "cancel": "cancelled"}
GUIDES = frozenset({"steer", "add_context"})
TAKEN = {"steer", "add_context", "override_step", "pause", "resume", "abort", "extend_budget"}
OVERRIDE = {"skill": "look", "input": {"at": 9}}
OPENS_NONE = ("compress", "decide", "ask", "summary")
"""States in which no step is open. A step override adds a step there."""
AT_ONCE = 12

CELLS = list(product(STATES, ("running", "paused"), ACTS))


@dataclass
class Played:
    """One goal that got an intervention in one state, with what the test observed."""

    state: str
    is_paused: bool
    act: str
    staged: Staged
    refusals: list[str] = field(default_factory=list[str])
    paused_after: str = ""
    """The last turn before the pause, if the goal was paused."""
    pursued: EndedGoal | None = None
    status: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def ran(self) -> EndedGoal:
        """The ended goal."""
        assert self.pursued is not None
        return self.pursued

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the data of all journal entries of one event."""
        return [entry.data for entry in self.ran.journal if entry.event == event]


async def play(loop: Loop, model: StagedModel, state: str, moment: str, act: str) -> Played:
    """Lead a goal to the state, send the intervention there, and wait for its end."""
    workflow_id = f"goal-{uuid4()}"
    staged = model.stage(workflow_id, "" if state == "ask" else state)
    played = Played(state, moment == "paused", act, staged)
    handle = await start(loop, workflow_id=workflow_id)
    if state in {"ask", "summary"}:
        await wait_for_question(handle)
    if state == "summary":
        await answer_goal(handle, "1999")
    if state != "ask":
        await staged.hold.reached()
    if played.is_paused:
        await handle.signal("pause")
        staged.hold.go.set()
        if state != "ask":
            await wait_until_paused(handle)
            played.paused_after = staged.turns[-1]
    await _do(handle, act, played)
    if act not in ENDS:
        staged.hold.go.set()
        await _attend(handle, asyncio.create_task(handle.result()), played)
    played.pursued = await wait_for_goal(handle, loop.client)
    played.status = await goal_status(handle)
    return played


async def _do(handle: WorkflowHandle[Any, Any], act: str, played: Played) -> None:
    match act:
        case "cancel":
            await handle.cancel()
        case "answer":
            try:
                await answer_goal(handle, "1999")
            except WorkflowUpdateFailedError as error:
                played.refusals.append(str(error.cause))
        case "extend_budget":
            await send_update(handle, "extend_budget", {"max_iterations": 99})
        case "override_step":
            await handle.signal(act, OVERRIDE)
        case _:
            await handle.signal(act, *(["enough"] if act == "abort" else ["mind the gap"] if act in GUIDES else []))


async def _attend(handle: WorkflowHandle[Any, Any], ends: asyncio.Task[Any], played: Played) -> None:
    """Answer the goal's question and resume the goal if it is paused, until it ends."""
    resumes = (played.is_paused or played.act == "pause") and played.act != "resume"
    while not ends.done():
        status = await goal_status(handle)
        if status["waiting"]:
            await answer_goal(handle, "1999")
        elif resumes and status["phase"] == "paused":
            played.paused_after, resumes = played.staged.turns[-1], False
            await handle.signal("resume")
        await asyncio.sleep(0.05)


Table = dict[tuple[str, str, str], Played | BaseException]


@pytest.fixture(scope="module")
async def table(client: Client) -> Table:
    model, rooms = StagedModel(), asyncio.Semaphore(AT_ONCE)

    async def played(*cell: str) -> Played:
        async with rooms:
            return await play(loop, model, *cell)

    async with a_loop(client, model, FakeTool("look", model.look)) as loop:
        found = await asyncio.gather(*(played(*cell) for cell in CELLS), return_exceptions=True)
    return dict(zip(CELLS, found, strict=True))


TURNS_BEFORE = {"plan": 1, "execute": 2, "evaluate": 3, "compress": 5, "decide": 6, "ask": 6, "summary": 8}
"""Number of turns of an undisturbed goal before the hold in this state."""

STEPS_DONE = {"plan": 0, "execute": 1, "evaluate": 2, "compress": 3, "decide": 3, "ask": 3, "summary": 3}
DECIDES_AFTER = {"plan": 1, "execute": 3, "evaluate": 3}
"""Turn after which the model decides because people intervened. Without them, a rule would continue."""

IN_PLACE_OF_AN_ANSWER = set(product(("decide", "ask"), (*GUIDES, "override_step")))
"""Interventions that close or prevent an open question. The model reads them and decides."""


def expected_turns(played: Played) -> list[str]:
    """Return the turns after this intervention. Guidance adds a decision, and an end stops further turns."""
    state, act = played.state, played.act
    if act in ENDS:
        return TURNS[: TURNS_BEFORE[state]]
    if act == "override_step" and state in OPENS_NONE:
        at = TURNS_BEFORE[state]
        return [*TURNS[:at], "evaluate", *(["decide", "summary"] if state == "summary" else TURNS[at:])]
    is_told = act == "override_step" and state == "plan"
    if act not in GUIDES and not is_told:
        return TURNS
    if state == "summary":
        return [*TURNS, "decide", "summary"]
    at = 2 if is_told else DECIDES_AFTER.get(state)
    return TURNS if at is None else [*TURNS[:at], "decide", *TURNS[at:]]


def expected_looks(played: Played) -> list[int]:
    """Return what the steps look at. An override replaces the next due step, or is added to the plan."""
    if played.act != "override_step":
        return [1, 2, 3]
    if is_before_plan(played):
        return [9, 1, 2, 3]
    if played.state in OPENS_NONE:
        return [1, 2, 3, 9]
    return [9, 2, 3] if played.state == "plan" else [1, 2, 9]


def is_before_plan(played: Played) -> bool:
    """Return whether there was no plan yet that the override could change, so that it adds a step."""
    return (played.state, played.is_paused, played.act) == ("plan", False, "override_step")


@pytest.mark.parametrize("cell", CELLS, ids=" ".join)
async def test_any_intervention_in_any_state(table: Table, cell: tuple[str, str, str]) -> None:
    state, moment, act = cell
    played = table[cell]
    if isinstance(played, BaseException):
        raise played
    ran, staged = played.ran, played.staged

    assert staged.turns == expected_turns(played)
    assert len(set(staged.keys)) == len(staged.keys)
    assert staged.looked_at == expected_looks(played)[: len(staged.keys)]
    check_ending(played)
    check_record(played)
    assert [each for each in played.refusals if "no question is open" not in each] == []
    assert bool(played.refusals) is (act == "answer" and state != "ask")
    if act in GUIDES:
        assert staged.asked[-1][1].count("mind the gap") == 1
    assert staged.asked[-1][1].count("On the operator's instruction, step") == (act == "override_step")
    if act == "extend_budget":
        assert played.status["budgets"]["max_iterations"] == 99
    if (moment == "paused" or act == "pause") and not (state == "ask" and act in {*ENDS, "resume"}):
        assert played.paused_after == TURNS[TURNS_BEFORE[state] - 1]
    if moment == "running" and act in ENDS and state != "ask":
        assert staged.hold.cancelled.is_set()
    assert (played.status["phase"], played.status["waiting"], played.status["question"]) == ("done", [], None)
    assert played.status["termination"] == ran.result.termination.model_dump(mode="json")


def check_ending(played: Played) -> None:
    """Assert that the goal ended once, with everything found until then."""
    result, done = played.ran.result, 3
    if played.act in ENDS:
        assert (result.termination.reason, result.termination.detail) == ("aborted", ENDS[played.act])
        done = STEPS_DONE[played.state] + (played.state == "execute" and played.is_paused)
        assert [f"seen {number}" in result.output for number in (1, 2, 3)] == [number <= done for number in (1, 2, 3)]
    else:
        assert (result.termination.reason, result.output) == ("completed", "the final answer")
        done = len(expected_looks(played))
    assert [step.status for step in result.steps].count("done") == done
    assert len(played.staged.keys) - done in {0, played.state == "execute" and played.act in ENDS}
    rounds = {data["place"].partition(".")[0] for data in played.of("StepExecuted")}
    assert result.usage.model_calls == len(played.of("ReasoningComplete")) - len(rounds)


def check_record(played: Played) -> None:
    """Assert that the journal records each intervention once, and the question with its answer."""
    is_moot = (played.state, played.act) in IN_PLACE_OF_AN_ANSWER
    is_answered = not is_moot and (played.state == "summary" or played.act not in ENDS)
    reported = Counter(data["kind"] for data in played.of("InterventionReceived"))
    was_paused = played.is_paused + (played.act == "pause")
    expected = Counter({played.act: 1} if played.act in TAKEN else {})
    expected["answer"] = is_answered
    expected["pause"] = was_paused
    expected["resume"] = int(was_paused > 0 and played.act not in ENDS) or int(played.act == "resume")
    assert reported == +expected
    assert played.of("InterventionRefused") == []
    assert len(played.of("StepOverridden")) == (played.act == "override_step")
    is_asked = played.state in {"ask", "summary"} or (played.act not in ENDS and not is_moot)
    closed = [reported["choice"] for reported in played.of("QuestionAnswered")]
    assert len(played.of("QuestionAsked")) == is_asked
    assert closed == (["result"] if is_answered else ["none"] * is_asked)
