"""What a run has gathered: its output, where it ends without an answer."""

from workflows.decisions.critic_scope import answer_critics
from workflows.types.clipped import clip
from workflows.types.result import StopReason
from workflows.types.state import AgentState

MAX_GATHERED_BYTES = 20_000
"""The newest stays; the state has to fit a payload."""


def with_gathered(state: AgentState, text: str) -> AgentState:
    """Take in text that stood beside calls which the gate let through, or what a delegate said."""
    text = clip(text.strip(), MAX_GATHERED_BYTES, "the conversation has all of it")
    if not text:
        return state
    kept = (*state.gathered, text)
    while sum(map(len, map(str.encode, kept))) > MAX_GATHERED_BYTES:
        kept = kept[1:]
    return state.model_copy(update={"gathered": kept})


def missing_output(state: AgentState, reason: StopReason) -> str:
    """Return what would be brought in place of an answer, or "": where there is one, or a critic had to see it."""
    if reason == "completed" or state.output or (state.setup and answer_critics(state.setup)):
        return ""
    return "\n\n".join(state.gathered)


def with_output(state: AgentState, text: str) -> AgentState:
    """Bring it: the gate has let it through."""
    return state.model_copy(update={"output": text})
