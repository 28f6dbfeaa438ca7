"""Whole runs as values, drawn at random: replies, outcomes of calls, and what people send and when."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from hypothesis import strategies as st

from orga.activities.ports import ModelError
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.tool_calls.breakers import BreakerOptions
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions

OFFERED = ("look", "save", "pay")
DENIED, HIDDEN, UNKNOWN, FETCH, TERMINATE = "denied", "hidden", "unknown", "fetch_url", "terminate"
PROVEN_WORD = "forbidden"
"""An answer that contains it is denied."""

NO_OPTIONS = ToolOptions()

Fate = Literal["ok", "big", "final", "retryable", "crash", "slow"]
"""The outcome of one attempt of a call."""

Kind = Literal["steer", "add_context", "pause", "abort", "extend_budget", "override_step"]


@dataclass(frozen=True)
class ToolPlan:
    """A tool, and the outcomes of its attempts, in order and then from the start again."""

    name: str
    effect: Effect = "read_only"
    options: ToolOptions = NO_OPTIONS
    fates: tuple[Fate, ...] = ("ok",)


@dataclass(frozen=True)
class Act:
    """An intervention at the run's `moment`: the nth model call or tool attempt. 0 is before both."""

    moment: int
    kind: Kind
    by: int = 1
    """The extension of a budget."""


@dataclass(frozen=True)
class Scenario:
    """Everything that happens to a run. After its script the model answers."""

    script: tuple[Reply | ModelError, ...] = ()
    tools: tuple[ToolPlan, ...] = ()
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    references: int = 0
    roll_over_events: int = 3_500
    acts: tuple[Act, ...] = ()
    choices: tuple[str, ...] = ()
    """A person's decisions, one for each question. Later questions get "skip"."""
    requeues: int = 0
    """Dead letters that a person requeues."""


_arguments = st.sampled_from([*({"n": number} for number in range(6)), {}, {"n": "no number"}])
_calls = st.builds(
    ToolCall,
    call_id=st.sampled_from(["", "a", "a", "a_2", "b"]),
    name=st.sampled_from([*OFFERED, *OFFERED, DENIED, HIDDEN, UNKNOWN]),
    arguments=_arguments,
    malformed=st.sampled_from([None] * 9 + ["[1"]),
)
_endings = st.builds(
    ToolCall,
    call_id=st.just("end"),
    name=st.just(TERMINATE),
    arguments=st.sampled_from([{"reason": "enough", "output": "all of it"}, {"reason": 7}]),
)
_usages = st.builds(
    Usage,
    input_tokens=st.sampled_from([0, 50, 400, 1_500]),
    output_tokens=st.sampled_from([0, 10, 200]),
    cached_input_tokens=st.sampled_from([0, 20]),
)
_costs = st.sampled_from([None, 0.0, 0.01, 0.4])
_texts = st.sampled_from(["", "", "thinking", "t" * 2_000])


def _proposals(calls: st.SearchStrategy[list[ToolCall]]) -> st.SearchStrategy[Reply]:
    return st.builds(
        Reply,
        text=_texts,
        calls=calls.map(tuple),
        finish=st.sampled_from(["tool_calls"] * 8 + ["stop", "length", "refusal", "content_filter"]),
        usage=_usages,
        cost_usd=_costs,
    )


_answers = st.builds(
    Reply,
    text=st.sampled_from(["", " ", "a part of it", f"a {PROVEN_WORD} answer"]),
    finish=st.sampled_from(["stop", "length", "refusal", "content_filter"]),
    usage=_usages,
    cost_usd=_costs,
)
_failures = st.sampled_from(
    [
        *[ModelError("RateLimited", "429: slow down", retryable=True, retry_after_s=0.01)] * 16,
        *[ModelError("ContextOverflow", "too long", retryable=False)] * 2,
        ModelError("InvalidRequest", "400: odd", retryable=False),
    ]
)
_small = _proposals(st.lists(_calls, min_size=1, max_size=3))
_large = _proposals(st.lists(_calls, min_size=1, max_size=6))
_endings_beside = _proposals(st.tuples(_endings, _calls).flatmap(st.permutations))
_useful = st.lists(_calls.filter(lambda call: call.name in OFFERED and not call.malformed), min_size=1, max_size=3)

useful_steps: st.SearchStrategy[Reply | ModelError] = st.builds(
    Reply, text=_texts, calls=_useful.map(tuple), finish=st.just("tool_calls"), usage=_usages, cost_usd=_costs
)
"""Calls of offered tools."""
any_steps: st.SearchStrategy[Reply | ModelError] = st.one_of(
    useful_steps, _small, _small, _small, _large, _answers, _failures, _endings_beside
)


@st.composite
def _recoveries(draw: st.DrawFn) -> Recovery:
    return Recovery(
        strategy=draw(
            st.sampled_from(["retry", "fallback", "cached_result", "llm_recovery", "escalate", "dead_letter"])
        ),
        max_attempts=draw(st.integers(1, 3)),
        base_delay_ms=1,
        alternatives=tuple(draw(st.lists(st.sampled_from([*OFFERED, DENIED, HIDDEN]), min_size=1, max_size=2))),
        max_recovery_attempts=draw(st.integers(1, 2)),
    )


FATES: tuple[Fate, ...] = ("ok", "ok", "ok", "ok", "big", "final", "final", "retryable", "retryable", "crash", "slow")


@st.composite
def _tool_plans(draw: st.DrawFn, name: str, among: tuple[Fate, ...]) -> ToolPlan:
    fates = draw(st.lists(st.sampled_from(among), min_size=1, max_size=5))
    effect: Effect = draw(st.sampled_from(get_args(Effect)))
    is_slow = "slow" in fates
    is_local = effect == "read_only" and not is_slow and draw(st.booleans())
    options = ToolOptions(
        timeout_s=0.5 if is_slow else None,
        max_attempts=draw(st.sampled_from([None, 1, 2, 3])),
        initial_interval_s=0.001,
        execution="local" if is_local else "activity",
        recovery=draw(st.one_of(_recoveries(), _recoveries(), st.none())),
        breaker=BreakerOptions(
            enabled=draw(st.booleans()),
            failure_threshold=draw(st.integers(1, 3)),
            recovery_s=draw(st.sampled_from([0.01, 60])),
            half_open_max_calls=draw(st.integers(1, 2)),
        ),
        max_result_bytes=draw(st.sampled_from([200, 20_000])),
    )
    return ToolPlan(name, effect, options, tuple(fates))


_settings = st.fixed_dictionaries(
    {
        "max_concurrent_tools": st.integers(1, 3),
        "context_token_budget": st.sampled_from([500, 700, 1_500, 32_000]),
        "context_strategy": st.sampled_from(["sliding_window", "observation_masking", "anchored_summary", "none"]),
        "on_exhausted": st.sampled_from(["stop", "ask"]),
        "tool_profile": st.just({"exclude": [HIDDEN]}),
        "step_iteration": st.none()
        | st.fixed_dictionaries(
            {
                "max_reattempts": st.integers(1, 3),
                "on_limit_reached": st.sampled_from(["skip_step", "abort_task", "escalate"]),
            }
        ),
    }
)
_limits: dict[str, st.SearchStrategy[Any]] = {
    "max_iterations": st.integers(1, 6),
    "max_total_tokens": st.integers(1, 6_000),
    "max_cost_usd": st.sampled_from([0.005, 0.3, 1.0]),
    "max_model_calls": st.integers(1, 6),
    "max_tool_calls": st.integers(0, 6),
}


@st.composite
def _configs(draw: st.DrawFn, limits: int) -> dict[str, Any]:
    config: dict[str, Any] = dict(draw(_settings))
    for name in draw(st.sets(st.sampled_from(sorted(_limits)), min_size=min(limits, 1), max_size=limits)):
        config[name] = draw(_limits[name])
    return config


def _acts(*kinds: Kind) -> st.SearchStrategy[Act]:
    return st.builds(Act, st.integers(0, 10), st.sampled_from(kinds), st.sampled_from([1, 50, 5_000]))


ANY_KIND: tuple[Kind, ...] = ("steer", "steer", "add_context", "pause", "pause", "abort", "extend_budget")
NO_END: tuple[Kind, ...] = ("steer", "steer", "steer", "add_context", "add_context", "pause", "extend_budget")


@st.composite
def scenarios(
    draw: st.DrawFn,
    *,
    steps: st.SearchStrategy[Reply | ModelError] = any_steps,
    fates: tuple[Fate, ...] = FATES,
    limits: int = 2,
    acts: int = 4,
    kinds: tuple[Kind, ...] = ANY_KIND,
    choices: tuple[str, ...] = ("retry", "result", "skip", "extend", "abort"),
) -> Scenario:
    """Draw a whole run from these steps and outcomes, with at most this many limits and acts of people."""
    return Scenario(
        script=tuple(draw(st.lists(steps, min_size=3, max_size=8))),
        tools=tuple(draw(_tool_plans(name, fates)) for name in (*OFFERED, FETCH)),
        config=draw(_configs(limits)),
        references=draw(st.sampled_from([0, 0, 0, 1, 3])),
        roll_over_events=draw(st.sampled_from([1, 20, 40, 3_500])),
        acts=tuple(draw(st.lists(_acts(*kinds), max_size=acts))),
        choices=tuple(draw(st.lists(st.sampled_from(choices), max_size=8))),
        requeues=draw(st.integers(0, 1)),
    )


any_run = scenarios()
failing_tools = scenarios(
    steps=useful_steps,
    fates=("ok", "final", "final", "retryable", "retryable", "retryable", "crash", "slow"),
    limits=0,
    acts=1,
    choices=("retry", "retry", "result", "skip", "skip"),
)
tight_budgets = scenarios(
    steps=useful_steps,
    fates=("ok",),
    limits=3,
    acts=2,
    kinds=("extend_budget", "steer"),
    choices=("extend", "extend", "skip"),
)
busy_people = scenarios(steps=useful_steps, fates=("ok", "big", "final"), limits=0, acts=12, kinds=NO_END)
short_of_time = scenarios(
    steps=useful_steps,
    fates=("ok", "ok", "slow"),
    limits=0,
    acts=3,
    kinds=NO_END,
    choices=("extend", "extend", "skip", "abort"),
).map(lambda scenario: replace(scenario, config={**scenario.config, "timeout_s": 0.8}))
