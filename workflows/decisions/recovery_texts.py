"""What the model and people are told about a recovery."""

from datetime import datetime
from typing import NamedTuple

from pydantic_core import to_json

from orga.workflows.decisions.control.questions import shown_arguments
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import Question
from orga.workflows.types.recovery import DeadLetter, Recovery
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import clip

SHOWN_MESSAGES = 4
SHOWN_BYTES = 2_000
"""Of the arguments, and of each message, in what a person is shown."""


def from_fallback(tool: str) -> str:
    """Say, before its error, that another tool answered the call."""
    return f"[Fallback] {tool} answered instead; the call failed: "


def cached(age_s: float) -> str:
    """Say, before the error of the call, that an earlier result is shown."""
    return f"[Cached result, {age_s:.0f} s old] the call failed now: "


def asked_again(left: int) -> str:
    """Say how often the model may still try."""
    return f"[Recovery] Correct the call or choose another way; {left} more failures of this tool are taken."


def given_up(tool: str) -> str:
    """Say that a tool is not called any more."""
    return f"[Recovery] {tool} is not called again in this run; go on without it."


def person_gave(result: str) -> str:
    """Say that a person gave the result."""
    return f"[Result from the operator]\n{result}"


def not_retried(reason: str) -> str:
    """Say that a person wanted another attempt, and that policy is against it by now."""
    return f"[Policy denied] An operator wanted it called again: {reason}"


def dead_lettered(letter: DeadLetter) -> str:
    """Say that the call is kept."""
    return f"[Dead letter] The call is kept as {letter.letter_id} for an operator to send again; go on without it."


class Asked(NamedTuple):
    """What a person is asked about."""

    call: ToolCall
    question_id: str
    error: str
    at: datetime
    unclear: str = ""
    """What is to be said of an effect that it may have had."""


def escalation(state: AgentState, asked: Asked, settings: Recovery) -> Question:
    """Return the question to a person about a call that failed."""
    call = asked.call
    arguments = to_json(call.arguments, inf_nan_mode="strings").decode()
    data: dict[str, object] = {
        "tool": call.name,
        "call_id": call.call_id,
        "error": f"{clip(asked.error, SHOWN_BYTES)}{asked.unclear}",
    }
    if settings.context_snapshot:
        latest = state.conversation.messages[-SHOWN_MESSAGES:]
        data |= shown_arguments(arguments, SHOWN_BYTES)
        data["latest"] = [{"role": m.role, "text": clip(m.text, SHOWN_BYTES)} for m in latest]
    return Question(
        question_id=asked.question_id,
        kind="escalation",
        since=asked.at,
        text=f"{call.name} failed: try again, skip, give its result, abort?",
        queue=settings.queue,
        data=data,
        choices=("retry", "skip", "result", "abort"),
    )
