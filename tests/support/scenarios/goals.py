"""Whole goals as values: plans, scores, decisions and invalid replies of the model, and outcomes of the steps."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, cycle, repeat
from typing import Any

from hypothesis import strategies as st

from orga.activities.ports import ModelRequest
from orga.client.testing.script import USAGE
from orga.testing import answers
from orga.workflows.types.goals.requests import goal_prompt_in
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.model.goals import requesting_message, says
from tests.support.scenarios.scenario import ANY_KIND, DENIED, Act, Fate, Scenario, ToolPlan
from tests.support.values.goals import all_of
from tests.support.values.hostile_turns import HOSTILE_TURNS

Planned = tuple[tuple[str, bool, tuple[int, ...]], ...]
"""Steps: the tool, whether its arguments are planned, and the numbers of the earlier steps it depends on."""


@dataclass(frozen=True)
class GoalScenario(Scenario):
    """Everything that happens to a goal."""

    plans: tuple[Planned, ...] = ()
    """The first plan, and those that decisions change it to, in order and then from the start again."""
    scores: tuple[int, ...] = (4,)
    decisions: tuple[str, ...] = ("done",)
    """Decisions in order, then "done"."""
    babble: tuple[tuple[int, str], ...] = ()
    """Numbers of model calls, and the invalid replies returned in them."""


class Author:
    """Writes the replies of a scenario's model."""

    def __init__(self, scenario: GoalScenario) -> None:
        self._babble = dict(scenario.babble)
        self._plans: Iterator[Planned] = cycle(scenario.plans)
        self._scores = cycle(scenario.scores)
        self._decisions = chain(scenario.decisions, repeat("done"))
        self._calls = self._written = 0

    def reply(self, request: ModelRequest) -> Reply:
        """Return the next reply."""
        self._calls += 1
        if self._calls in self._babble:
            return answers(HOSTILE_TURNS[self._babble[self._calls]])
        text = requesting_message(request)
        listed = re.findall(r"^- (\S+?)(?: \((\w+)\))?: ", text, re.MULTILINE)
        match goal_prompt_in(text):
            case "goal_plan":
                return says(steps=self._plan(), memory="m" * 600)
            case "goal_input":
                made = [ToolCall(call_id=step, name=tool, arguments={"n": 1}) for step, tool in listed]
                return Reply.of(calls=made, finish="tool_calls", usage=USAGE)
            case "goal_evaluate":
                return says(steps=[{"id": step, **all_of(next(self._scores))} for step, _ in listed])
            case "goal_decide":
                return self._decision(next(self._decisions))
            case "goal_compress":
                return says(memory="short")
            case _:
                return answers("the end")

    def _plan(self) -> list[dict[str, Any]]:
        self._written += 1
        return [
            {
                "id": self._id(number),
                "goal": "g",
                "skill": tool,
                "arguments": {"n": 10 * self._written + number} if is_planned else None,
                "depends_on": [self._id(need) for need in needs],
            }
            for number, (tool, is_planned, needs) in enumerate(next(self._plans))
        ]

    def _id(self, number: int) -> str:
        return f"p{self._written}s{number}"

    def _decision(self, action: str) -> Reply:
        more = {"steps": self._plan()} if action == "adjust" else {"question": "which?"}
        return says(action=action, confidence=0.5 if action == "adjust" else 0.9, **more)


@st.composite
def _plans(draw: st.DrawFn) -> Planned:
    tools = st.sampled_from(["look", "look", "save", "pay", DENIED])
    steps = list[tuple[str, bool, tuple[int, ...]]]()
    for number in range(draw(st.integers(1, 5))):
        needs = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set[int]()
        steps.append((draw(tools), draw(st.integers(0, 3)) > 0, tuple(sorted(needs))))
    return tuple(steps)


_FATES: tuple[Fate, ...] = ("ok", "ok", "ok", "big", "final", "crash")
_QUICK = ToolOptions(max_attempts=2, initial_interval_s=0.001)


def _tools(name: str) -> st.SearchStrategy[ToolPlan]:
    effects = {"look": "read_only", "save": "idempotent", "pay": "irreversible"}
    fates = st.lists(st.sampled_from(_FATES), min_size=1, max_size=4).map(tuple)
    return fates.map(lambda drawn: ToolPlan(name, effects[name], _QUICK, drawn))  # type: ignore[arg-type]


@st.composite
def goals(draw: st.DrawFn) -> GoalScenario:
    """Draw a whole goal: plans, scores, decisions and invalid replies, outcomes of steps, acts of people."""
    actions = ("continue", "adjust", "ask_user", "ask_user", "done", "stuck")
    moments = st.tuples(st.integers(1, 12), st.sampled_from(sorted(HOSTILE_TURNS)))
    kinds = st.sampled_from((*ANY_KIND, "override_step", "override_step"))
    acts = st.builds(Act, st.integers(0, 12), kinds, st.sampled_from([1, 5]))
    return GoalScenario(
        tools=tuple(draw(_tools(name)) for name in ("look", "save", "pay")),
        config={
            "max_iterations": draw(st.sampled_from([1, 2, 15, 15])),
            "max_llm_calls": draw(st.sampled_from([4, 9, 60, 60])),
            "max_parallel_steps": draw(st.integers(1, 3)),
            "stuck_threshold": draw(st.integers(1, 4)),
            "on_exhausted": draw(st.sampled_from(["stop", "ask"])),
            "context_token_budget": draw(st.sampled_from([1_500, 32_000])),
        },
        roll_over_events=draw(st.sampled_from([1, 30, 60, 3_500])),
        acts=tuple(draw(st.lists(acts, max_size=5))),
        choices=tuple(draw(st.lists(st.sampled_from(["extend", "skip", "abort"]), max_size=3))),
        plans=tuple(draw(st.lists(_plans(), min_size=1, max_size=3))),
        scores=tuple(draw(st.lists(st.sampled_from([1, 3, 4, 5]), min_size=1, max_size=4))),
        decisions=tuple(draw(st.lists(st.sampled_from(actions), max_size=6))),
        babble=tuple(draw(st.lists(moments, max_size=3))),
    )
