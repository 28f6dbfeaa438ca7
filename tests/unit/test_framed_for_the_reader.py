"""What the offline reader takes for its question in the task of a pipeline's step: not what frames it."""

from collections.abc import Mapping
from typing import Any

import pytest

from orga.activities.adapters.models.reader.question import question_of
from orga.workflows.decisions.goals.pipelines.tasks import task_of
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.messages import Message
from tests.support.values.pipelines import after_round, piped

GOAL = "When may a book be renewed?"


def chain(*steps: str | Mapping[str, str]) -> dict[str, Any]:
    return {"kind": "chain", "steps": list(steps)}


def survey(**reading: str) -> dict[str, Any]:
    return {"kind": "map_reduce", "map": {"agent": "reader", **reading}, "reduce": "editor", "inputs": ["loans.md"]}


def asked(state: GoalState, step_id: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the words that are searched for, and the files that are named."""
    assert state.setup is not None
    assert state.setup.pipeline is not None
    step = next(step for step in state.pursuit.steps if step.id == step_id)
    question = question_of([Message.of("user", task_of(state, state.setup.pipeline, step), pinned=True)])
    return [term.surface for term in question.terms], question.paths


FEES = {"agent": "reader", "task": "What do late returns cost?"}
SENTENCE = {"agent": "writer", "task": "Put it into one sentence, with its source."}
WRITES = {"agent": "writer", "task": "Write a leaflet of at most 80 words."}
OF_THE_GOAL = "Say what the document that is your input says of the goal."


@pytest.mark.parametrize(
    ("config", "step_id", "words", "paths"),
    [
        pytest.param(chain("reader", "writer"), "step-1", ["book", "renewed"], (), id="a step without a task"),
        pytest.param(chain(FEES, "writer"), "step-1", ["late", "returns", "cost"], (), id="a task that asks by itself"),
        pytest.param(chain("reader", SENTENCE), "step-2", ["book", "renewed"], (), id="a task that says what to make"),
        pytest.param(chain("reader", WRITES), "step-2", ["book", "renewed"], (), id="a task to write"),
        pytest.param(chain("reader", FEES), "step-2", ["late", "returns", "cost"], (), id="not what another brought"),
        pytest.param(survey(), "map-1", ["book", "renewed"], ("loans.md",), id="the input is part of it"),
        pytest.param(
            survey(task=OF_THE_GOAL), "map-1", ["book", "renewed"], ("loans.md",), id="a task that speaks of the goal"
        ),
        pytest.param(survey(), "reduce", ["book", "renewed"], (), id="not what came of the inputs"),
    ],
)
def test_a_step_asks_in_its_own_words(
    config: dict[str, Any], step_id: str, words: list[str], paths: tuple[str, ...]
) -> None:
    state = piped(config, GOAL)
    state = (
        state if step_id in {"step-1", "map-1"} else after_round(state, "> Twice, unless somebody waits.\n— fees.md:3")
    )
    assert asked(state, step_id) == (words, paths)


def test_what_people_said_meanwhile_refines_it() -> None:
    task = f"Do your part of the goal below.\n\nThe goal:\n{GOAL}\n\nFrom the operator:\nonly novels"
    question = question_of([Message.of("user", task)])
    assert [(term.surface, term.is_added) for term in question.terms] == [
        ("book", False),
        ("renewed", False),
        ("novels", True),
    ]


def test_a_text_that_is_no_such_task_is_asked_as_it_is() -> None:
    text = "What is the goal:\nand what begins a step?"
    assert question_of([Message.of("user", text)]).text == text


def test_calls_for_the_steps_of_a_plan_are_asked_for_by_the_words_of_these_steps() -> None:
    said = [
        Message.of("user", "Tell what the library says of loans and of holidays", pinned=True),
        Message.of("user", "[goal_plan] Plan how the goal above is reached. Skills:\n- search_text: searches"),
        Message.of("assistant", '{"steps": []}'),
        Message.of(
            "user",
            "[goal_input] Make one call for each step, in this order, and no others.\nSteps of this round:\n"
            '- o1 (search_text): late returns\n- o2 (read_file): keys with {"path":"x"}\nKept in mind:\nKafka',
        ),
    ]
    assert [term.surface for term in question_of(said).terms] == ["late", "returns", "keys"]
    assert [term.surface for term in question_of(said[:2]).terms] == ["library", "loans", "holidays"]
