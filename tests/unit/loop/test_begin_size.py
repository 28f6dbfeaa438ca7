"""An input that is too large to be carried into the next segment is refused when the run is prepared."""

from orga.activities.prepare import MAX_SETUP_BYTES
from orga.workflows.decisions.begin import BEGIN_BYTES, begin_bytes, size_problem
from tests.support.values.largest import Sizes, begun_with


def test_a_begin_that_is_too_large_is_refused_with_sizes_and_a_remedy() -> None:
    state = begun_with(Sizes())
    assert state.setup is not None
    assert BEGIN_BYTES * 0.97 < sum(begin_bytes(state, state.setup).values()) <= BEGIN_BYTES
    longer = state.setup.model_copy(update={"instructions": state.setup.instructions + "i" * 30_000})
    assert len(longer.model_dump_json(exclude_unset=True)) < MAX_SETUP_BYTES
    problem = size_problem(state, longer)
    assert f"over the limit of {BEGIN_BYTES}" in problem
    assert all(word in problem for word in ("setup 4", "task 1", "trusted_context", "tools ", "file", "tool_profile"))


def test_a_fork_also_counts_the_task_of_its_past() -> None:
    state = begun_with(Sizes(begin=0.5))
    assert state.setup is not None
    other = state.model_copy(update={"input": state.input.model_copy(update={"task": "another"})})
    assert begin_bytes(other, state.setup)["the task before"] > 90_000
    assert begin_bytes(state, state.setup)["the task before"] == 0
