"""Sagas (calls of `saga`): whether one may start, which steps are undone after it stopped, and its report.

The report has each step and each compensation, and delimits the tools' texts as data.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from orga.workflows.decisions.tool_calls.calls import UNKNOWN_OUTCOME_TEXT, taint_with_outcomes
from orga.workflows.decisions.tool_calls.dispatch import given_up_outcome
from orga.workflows.decisions.tool_calls.recovery import tool_recovery
from orga.workflows.types.conversation import call_source, delimited_tool_text
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.parts import NO_OWN_TEXT
from orga.workflows.types.record import validation_problems
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import clip
from orga.workflows.types.tool_calls.loop_tools import LOOP_TOOLS, MAX_STEPS, SAGA_ENDED, Action, SagaPlan, SagaStep
from orga.workflows.types.tool_calls.recovery import ERROR_MARKER, Outcome, Recovery, RecoveryStrategy
from orga.workflows.types.tool_calls.tools import ToolSpec

INTERRUPTED_TEXT = "the run was interrupted, and no time was left for it"

_COMMON_RECOVERIES: tuple[RecoveryStrategy, ...] = ("retry", "llm_recovery", "escalate")
_RECOVERIES: dict[str, tuple[RecoveryStrategy, ...]] = {
    "read_only": (*_COMMON_RECOVERIES, "fallback", "cached_result"),
    "compensatable": _COMMON_RECOVERIES,
    "final": _COMMON_RECOVERIES,
    "compensation": (*_COMMON_RECOVERIES, "fallback", "dead_letter"),
}
"""Recoveries that are allowed for each kind of step, and for a compensation. What is missing would break the saga.
`fallback` has the effect of another tool, which the step's compensation does not undo. `cached_result` reports an
earlier effect. A step in the `dead_letter` queue could be sent again after its saga was undone, and nothing would undo
it then.
"""


def saga_steps(call: ToolCall) -> tuple[SagaStep, ...]:
    try:
        return SagaPlan.model_validate(call.arguments).steps
    except ValidationError as error:
        raise ValueError("; ".join(validation_problems(error))) from None


def saga_problem(state: AgentState, steps: Sequence[SagaStep]) -> str:
    """Return why a saga may not start, or "". It is the first problem, with steps counted from 1."""
    if not steps:
        return "a saga needs at least one step"
    if len(steps) > MAX_STEPS:
        return f"a saga has at most {MAX_STEPS} steps, this one has {len(steps)}"
    is_after_final = False
    for number, step in enumerate(steps, 1):
        problem = _order_problem(step, is_after_final) or _step_problem(state, step)
        if problem:
            return f"step {number} ({step.tool}): {problem}"
        is_after_final = step.kind == "final"
    return ""


def steps_to_compensate(steps: Sequence[SagaStep], outcomes: Sequence[Outcome]) -> tuple[int, ...]:
    """Return the indexes of the steps to compensate, the last step first. `outcomes` are those of the steps that began.

    A failed step is compensated only if it may have had its effect: a leftover effect does harm, while a needless
    compensation fails or does nothing. After a final step has succeeded, nothing is undone: its effect remains, and
    depends on the earlier steps. The same holds if a final step may have succeeded: undoing the rest on a guess is
    irreversible, while a person who learns the outcome can still undo it.
    """
    if is_saga_done(steps, outcomes):
        return ()
    begun = list(zip(steps, outcomes, strict=False))
    if any(step.kind == "final" and may_have_effect(outcome) for step, outcome in begun):
        return ()
    return tuple(
        index
        for index, (step, outcome) in reversed(list(enumerate(begun)))
        if step.compensation is not None and may_have_effect(outcome)
    )


def is_saga_done(steps: Sequence[SagaStep], outcomes: Sequence[Outcome]) -> bool:
    return len(outcomes) == len(steps) and all(outcome.status == "ok" for outcome in outcomes)


def may_have_effect(outcome: Outcome) -> bool:
    return outcome.status == "ok" or outcome.may_have_acted


def foreseen_denial_text(activity_id: str, outcome: Outcome) -> str:
    """Return why a saga does not begin: the gate would refuse the call of one of its parts.

    `activity_id` is the place of that call. It ends with `.s<index>` for a step, with `.c<index>` for a compensation.
    """
    part = activity_id.rpartition(".")[2]
    what = "step" if part[0] == "s" else "the compensation of step"
    return f"{what} {int(part[1:]) + 1} ({outcome.call.name}): {outcome.text}"


def part_call(saga: ToolCall, activity_id: str, action: Action) -> ToolCall:
    """Return the call of a step or a compensation. Its id ends with the last part of its place (`3.0.s1`)."""
    return ToolCall(
        call_id=f"{saga.call_id}.{activity_id.rpartition('.')[2]}", name=action.tool, arguments=action.arguments
    )


def saga_part_spec(spec: ToolSpec, config: LoopConfig, part: str) -> ToolSpec:
    """Return the tool for a part of a saga (a kind of step, or `compensation`). Remove a recovery not allowed there."""
    recovery = tool_recovery(spec, config)
    if recovery.strategy in _RECOVERIES[part]:
        return spec
    plain = Recovery(max_attempts=recovery.max_attempts, base_delay_ms=recovery.base_delay_ms)
    return spec.with_options(spec.options.with_recovery(plain))


def with_saga_call(state: AgentState, kind: str) -> AgentState:
    """Count a call of a saga as it begins. A step leaves `under_way`, which had all steps, but no compensations."""
    under_way = state.under_way if kind == "compensation" else state.under_way - 1
    return state.with_budget(tool_calls=state.tool_calls.plus(in_sagas=1), under_way=under_way)


def with_saga_end(state: AgentState, activity_id: str, outcome: Outcome, acted: Sequence[Outcome]) -> AgentState:
    """Record the end of a saga, for the journal, and the taint of its tools.

    The taint is added only now, because no tool's text could enter the arguments of a later step.
    """
    state = state.with_dialogue(taint=taint_with_outcomes(state, acted))
    return state.with_note(
        SAGA_ENDED,
        place=activity_id,
        call_id=outcome.call.call_id,
        outcome=outcome.status,
        error=outcome.error,
        calls=[{"tool": each.call.name, "call_id": each.call.call_id, "outcome": each.status} for each in acted],
    )


def _order_problem(step: SagaStep, is_after_final: bool) -> str:
    if is_after_final and step.kind != "final":
        return "after a final step only final steps may follow: what a final step did cannot be taken back"
    if step.kind == "compensatable" and step.compensation is None:
        return "a compensatable step needs a compensation"
    if step.kind != "compensatable" and step.compensation is not None:
        return f"a {step.kind} step has no compensation; only a compensatable one has"
    return ""


def _step_problem(state: AgentState, step: SagaStep) -> str:
    for action in (step, step.compensation):
        if action is not None and (problem := _action_problem(state, action)):
            return problem if action is step else f"its compensation: {problem}"
    undoing = state.tool(step.compensation.tool) if step.compensation else None
    if undoing is not None and undoing.deferred is not None:
        return f"its compensation: the results of {undoing.name} come later, and a compensation cannot wait for days"
    spec = state.tool(step.tool)
    if step.kind == "read_only" and spec is not None and spec.effect != "read_only":
        return f"{step.tool} is no read-only tool; make the step compensatable or final"
    given_up = given_up_outcome(state, ToolCall(call_id="", name=step.tool, arguments=step.arguments))
    return given_up.text if given_up else ""


def _action_problem(state: AgentState, action: Action) -> str:
    if action.tool in LOOP_TOOLS:
        return f"{action.tool} cannot be part of a saga"
    offered = [spec.name for spec in state.tools if spec.name not in LOOP_TOOLS]
    return "" if action.tool in offered else f"there is no tool {action.tool!r}; there are: {', '.join(offered)}"


MIN_SHOWN_BYTES = 200

SpecLookup = Callable[[str], ToolSpec | None]


class SagaCourse(NamedTuple):
    steps: Sequence[SagaStep]
    """All proposed steps."""
    outcomes: Sequence[Outcome]
    """Outcomes of the steps that began."""
    undone: Mapping[int, Outcome] = {}
    """Outcomes of the compensations by the index of their step, in the order of execution."""


def saga_outcome(saga: ToolCall, course: SagaCourse, specs: SpecLookup, max_bytes: int) -> Outcome:
    """Return the single outcome of a saga. `max_bytes` limits the texts of all tools together."""
    report = _saga_report_lines(course, specs, max_bytes)
    if is_saga_done(course.steps, course.outcomes):
        done = Outcome(call=saga, status="ok", text="")
        return done.with_own_text(before="\n".join([f"[Saga done] all {len(course.steps)} steps", *report]))
    effects = _remaining_effects_text(course)
    failed = Outcome(
        call=saga, status="failed", text="", error=f"{saga_stop_text(course)}; {effects}", ours=NO_OWN_TEXT
    )
    return failed.with_own_text(before="\n".join([f"{ERROR_MARKER}{_stop_position_text(course)}; {effects}", *report]))


def saga_stop_text(course: SagaCourse) -> str:
    last = course.outcomes[-1] if course.outcomes else None
    why = "" if last is None or last.status == "ok" else f": {last.error or last.text}"
    return f"{_stop_position_text(course)}{why}"


def _stop_position_text(course: SagaCourse) -> str:
    """Return where a saga stopped, without any text of a tool."""
    steps, outcomes, number = course.steps, course.outcomes, len(course.outcomes)
    if outcomes and outcomes[-1].status != "ok":
        return f"saga stopped at step {number} of {len(steps)} ({steps[number - 1].tool} {outcomes[-1].status})"
    return f"saga stopped before step {number + 1} of {len(steps)}, because the run was interrupted"


def _remaining_effects_text(course: SagaCourse) -> str:
    begun = zip(course.steps, course.outcomes, strict=False)
    finals = [outcome for step, outcome in begun if step.kind == "final"]
    if any(outcome.status == "ok" for outcome in finals):
        return "partly done: a final step had succeeded before, so nothing is taken back"
    if any(map(may_have_effect, finals)):
        return f"nothing is taken back, since it is a final step{UNKNOWN_OUTCOME_TEXT}"
    not_undone = [str(n + 1) for n, outcome in course.undone.items() if outcome.status != "ok"]
    maybe_active = [str(n + 1) for n, outcome in enumerate(course.outcomes) if n in course.undone and outcome.goes_on]
    problems = [f"NOT taken back: step {', '.join(not_undone)}"] if not_undone else []
    problems += [f"NOT surely taken back: step {', '.join(maybe_active)}, which may still act"] if maybe_active else []
    if problems:
        return f"{'; '.join(problems)}; see to it"
    return "what was done is taken back" if course.undone else "there was nothing to take back"


def _saga_report_lines(course: SagaCourse, specs: SpecLookup, max_bytes: int) -> list[str]:
    outcomes, undone = course.outcomes, course.undone
    share = max(max_bytes // max(len(outcomes) + len(undone), 1), MIN_SHOWN_BYTES)
    lines = list[str]()
    for index, step in enumerate(course.steps):
        shown = _shown_outcome(outcomes[index], specs, share) if index < len(outcomes) else f"{step.tool}: not begun"
        lines.append(f"step {index + 1}, {step.kind}, {shown}")
    return lines + [
        f"compensation of step {n + 1}, {_shown_outcome(outcome, specs, share)}" for n, outcome in undone.items()
    ]


def _shown_outcome(outcome: Outcome, specs: SpecLookup, share: int) -> str:
    """Return the tool, the status of its call, and its text between lines that it cannot forge."""
    shortened = outcome.with_tool_text(clip(outcome.tool_text, share))
    source = call_source(outcome.call, specs(outcome.call.name))
    return f"{outcome.call.name}: {outcome.status}\n{delimited_tool_text(shortened.message(), source)}"
