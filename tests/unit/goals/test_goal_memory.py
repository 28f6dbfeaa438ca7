"""A goal's working memory is one text. A round writes it once; only an explicit replacement may shorten it."""

import pytest
from pydantic_core import to_json

from orga.workflows.decisions.goals.pursue import (
    with_compressed_memory,
    with_evaluation,
    with_round,
    with_round_outcomes,
)
from orga.workflows.decisions.goals.replies import lost_names
from orga.workflows.types.messages import Reply
from tests.support.values.goals import a_goal, a_plan_step, a_turn, all_of, step_outcomes

LONG = "The harbour opened in 1887, says docs/harbour.md; its crane lifts 40 tons, which is a lot of tons for a crane."


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        pytest.param("in 1887 it opened", "opened 1887", [], id="a year that is kept"),
        pytest.param("in 1887 it opened", "it opened", ["1887"], id="a year"),
        pytest.param("see docs/a.md, (docs/b.md)", "docs/A.md", ["docs/b.md"], id="a path, whatever its case"),
        pytest.param(
            "call read_file; ask ada@example.com.", "", ["read_file", "ada@example.com"], id="names of all kinds"
        ),
        pytest.param("words alone, many of them!", "few", [], id="ordinary words are no names"),
        pytest.param("", "", [], id="nothing"),
        pytest.param("... -- (1) 1", "2", ["1"], id="each once"),
    ],
)
def test_lost_names_are_found(before: str, after: str, lost: list[str]) -> None:
    assert lost_names(before, after) == lost


@pytest.mark.parametrize(
    ("memory", "is_taken", "lost"),
    [
        pytest.param("Harbour 1887 (docs/harbour.md), crane 40 t.", True, None, id="shorter, with all names"),
        pytest.param("Harbour 1887, crane.", False, ["docs/harbour.md", "40"], id="a source is lost"),
        pytest.param(f"{LONG} And more.", False, None, id="no shorter"),
    ],
)
def test_a_compressed_memory_must_keep_all_names(memory: str, is_taken: bool, lost: list[str] | None) -> None:
    state = a_goal().with_pursuit(memory=LONG, stage="compress")
    after = with_compressed_memory(state, Reply.of(to_json({"memory": memory}).decode()))
    assert after.pursuit.memory == (memory if is_taken else LONG)
    [note] = [each.data for each in after.notes if each.event == "MemoryCompressed"]
    assert (note["taken"], note.get("lost")) == (is_taken, lost)


@pytest.mark.parametrize(("written", "kept"), [("both ports", "both ports"), (None, "the harbour")])
def test_parallel_steps_write_no_memory_and_their_evaluation_does(written: str | None, kept: str) -> None:
    state = with_round(a_goal(a_plan_step("a"), a_plan_step("b"), memory="the harbour"))
    state = with_round_outcomes(state, step_outcomes(state, ("ok", "ok")))
    assert (state.pursuit.due, state.pursuit.memory) == (("a", "b"), "the harbour")
    after = with_evaluation(state, a_turn(steps=[{"id": each, **all_of(4)} for each in ("a", "b")], memory=written))
    assert after.pursuit.memory == kept
