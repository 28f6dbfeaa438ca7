"""What is said of a verdict: to the model, to the person who decides, in the detail of a result."""

from workflows.decisions.critic_verdict import Assessment
from workflows.types.clipped import clip
from workflows.types.critic import Critic
from workflows.types.result import StopReason
from workflows.types.untrusted import delimited

MAX_FEEDBACK_BYTES = 4_000
MAX_DETAIL_CHARS = 300


def told(critic: Critic, found: Assessment, salt: str) -> str:
    """Return a rejection as the model is told it. A model's feedback is data: it may say what it was made to say."""
    remarks = clip(found.feedback, MAX_FEEDBACK_BYTES)
    if found.is_by_person:
        return "A person who reviewed it said no" + (f": {remarks}" if remarks else ".")
    scores = ", ".join(f"{name} {value:.2f}" for name, value in found.dimensions.items())
    text = f"The critic {critic.name} gives it {_score(critic, found)} ({scores})."
    return text + (f"\n{delimited(remarks, f'remarks of {critic.name}', salt)}" if remarks else "")


def tries(critic: Critic, rounds_used: int) -> str:
    """Return what the model is told of the rounds that it has left, of which the next is one."""
    left = critic.max_rounds - rounds_used
    return "This is the last time." if left <= 1 else f"You have {left} more tries."


def why_asked(critic: Critic, found: Assessment) -> str:
    """Return why the rounds that are used up were not enough."""
    return f"{_score(critic, found)} after {critic.max_rounds} revisions{_one_line(found.feedback)}"


def ending(critic: Critic, found: Assessment) -> tuple[StopReason, str]:
    """Return the end of a run whose critic lets nothing through."""
    if found.failure:
        reason, detail = found.limit or "error", f"no review: {found.failure}"
    elif found.is_by_person and found.is_asked:
        reason, detail = "escalated", f"{found.reviewer.removeprefix('person:')} said no{_one_line(found.feedback)}"
    else:
        reason, detail = "error", why_asked(critic, found)
    return reason, f"critic {critic.name}: {detail}"[:MAX_DETAIL_CHARS]


def remark(critic: Critic, found: Assessment) -> str:
    """Return what is said of an answer that counts although no critic approved it, or ""."""
    if found.failure:
        return f"not reviewed by critic {critic.name}: {found.failure}"
    return "" if found.approved else f"accepted although critic {critic.name} gave it {_score(critic, found)}"


def _score(critic: Critic, found: Assessment) -> str:
    return "a no" if found.score is None else f"{found.score:.2f} of the {critic.threshold:.2f} that are needed"


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return f": {flat}" if flat else ""
