"""Hypothesis strategies for a run's decisions: limits, replies with calls and their outcomes, usage."""

from hypothesis import strategies as st

from orga.workflows.types.input import LoopConfig
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.tool_calls.recovery import OutcomeStatus, StepIteration
from tests.support.scenarios.modelled_run import NAMES

configs = st.builds(
    LoopConfig,
    max_iterations=st.sampled_from([4, 100, 100, 100]),
    max_total_tokens=st.sampled_from([3_000, 10**6, 10**6]),
    max_cost_usd=st.sampled_from([None, None, 0.5]),
    max_tool_calls=st.sampled_from([None, None, 9]),
    timeout_s=st.sampled_from([60.0, 10_000.0, 10_000.0]),
    context_token_budget=st.sampled_from([500, 900, 32_000]),
    context_strategy=st.sampled_from(["sliding_window", "observation_masking", "anchored_summary", "none"]),
    step_iteration=st.builds(
        StepIteration, max_reattempts=st.integers(1, 3), on_limit_reached=st.sampled_from(["skip_step", "escalate"])
    ),
)
fates: st.SearchStrategy[OutcomeStatus] = st.sampled_from(
    ["ok", "ok", "ok", "failed", "denied", "invalid", "cancelled"]
)
proposals = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 3), fates, st.integers(0, 900)), min_size=1, max_size=4
)
good_or_bad: st.SearchStrategy[OutcomeStatus] = st.sampled_from(["failed", "ok"])
stubborn = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 1), good_or_bad, st.just(600)),
    min_size=2,
    max_size=4,
)
"""Few values, so that they repeat: steps make no progress, circuits open, conversations exceed their budget."""
usages = st.builds(Usage, input_tokens=st.sampled_from([0, 100, 500]), output_tokens=st.sampled_from([0, 100]))
"""Round numbers, so that a limit is reached exactly."""
costs = st.sampled_from([None, 0.0, 0.1])
