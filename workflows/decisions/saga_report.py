"""What is told of a saga: each step and each compensation, with what the tools said as data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from workflows.decisions.outcomes import UNKNOWN
from workflows.decisions.saga import is_done, may_stand
from workflows.types.clipped import clip
from workflows.types.messages import ToolCall
from workflows.types.outcome import FAILED, Outcome
from workflows.types.saga import SagaStep
from workflows.types.tools import ToolSpec
from workflows.types.untrusted import as_data, source_of

MIN_SHOWN_BYTES = 200
"""Of each tool's words."""

Specs = Callable[[str], ToolSpec | None]


@dataclass(frozen=True)
class Course:
    """How a saga went."""

    steps: Sequence[SagaStep]
    """All that it proposed."""
    outcomes: Sequence[Outcome]
    """Of the steps that were begun."""
    undone: Mapping[int, Outcome] = field(default_factory=dict[int, Outcome])
    """Of the compensations, by the index of their step, in the order in which they were carried out."""


def ended(saga: ToolCall, course: Course, specs: Specs, max_bytes: int) -> Outcome:
    """Return the one outcome of a saga; `max_bytes` is for what the tools said, all together."""
    told = _told(course, specs, max_bytes)
    if is_done(course.steps, course.outcomes):
        done = Outcome(call=saga, status="ok", text="")
        return done.with_words(before="\n".join([f"[Saga done] all {len(course.steps)} steps", *told]))
    left = _left_behind(course)
    failed = Outcome(call=saga, status="failed", text="", error=f"{why(course)}; {left}", ours=(0, 0))
    return failed.with_words(before="\n".join([f"{FAILED}{_where(course)}; {left}", *told]))


def why(course: Course) -> str:
    """Return where a saga stopped and what was said there, for people and for the journal."""
    last = course.outcomes[-1] if course.outcomes else None
    said = "" if last is None or last.status == "ok" else f": {last.error or last.text}"
    return f"{_where(course)}{said}"


def _where(course: Course) -> str:
    """Say it without a word of a tool."""
    steps, outcomes, number = course.steps, course.outcomes, len(course.outcomes)
    if outcomes and outcomes[-1].status != "ok":
        return f"saga stopped at step {number} of {len(steps)} ({steps[number - 1].tool} {outcomes[-1].status})"
    return f"saga stopped before step {number + 1} of {len(steps)}, because the run was interrupted"


def _left_behind(course: Course) -> str:
    """Say what still stands."""
    begun = zip(course.steps, course.outcomes, strict=False)
    finals = [outcome for step, outcome in begun if step.kind == "final"]
    if any(outcome.status == "ok" for outcome in finals):
        return "partly done: a final step had succeeded before, so nothing is taken back"
    if any(map(may_stand, finals)):
        return f"nothing is taken back, since it is a final step{UNKNOWN}"
    bad = [str(n + 1) for n, outcome in course.undone.items() if outcome.status != "ok"]
    if bad:
        return f"NOT taken back: step {', '.join(bad)}; see to it"
    return "what was done is taken back" if course.undone else "there was nothing to take back"


def _told(course: Course, specs: Specs, max_bytes: int) -> list[str]:
    outcomes, undone = course.outcomes, course.undone
    share = max(max_bytes // max(len(outcomes) + len(undone), 1), MIN_SHOWN_BYTES)
    told = [f"step {n}, {step.kind}, " for n, step in enumerate(course.steps, 1)]
    for index, step in enumerate(course.steps):
        told[index] += _shown(outcomes[index], specs, share) if index < len(outcomes) else f"{step.tool}: not begun"
    return told + [f"compensation of step {n + 1}, {_shown(outcome, specs, share)}" for n, outcome in undone.items()]


def _shown(outcome: Outcome, specs: Specs, share: int) -> str:
    """Return the tool, what became of its call, and its words between lines that they cannot forge."""
    head, tail = outcome.own_words
    end = len(outcome.text) - tail
    data = clip(outcome.text[head:end], share)
    short = outcome.model_copy(update={"text": outcome.text[:head] + data + outcome.text[end:], "ours": (head, tail)})
    words = as_data(short.message(), source_of(outcome.call, specs(outcome.call.name)))
    return f"{outcome.call.name}: {outcome.status}\n{words}"
