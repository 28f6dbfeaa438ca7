"""How far our estimate of tokens is from what the provider counts, learned from its replies."""

from workflows.decisions.estimate import frame_tokens
from workflows.types.state import AgentState, Conversation

MIN_ESTIMATE = 500
"""Below this a provider's own overhead says more than the text."""

LOWEST, HIGHEST = 0.5, 3.0

WEIGHT = 0.5
"""Of the latest reply."""


def with_frame(state: AgentState) -> AgentState:
    """Return the state with the size of instructions and tools, measured once in a run."""
    if state.setup is None or state.conversation.frame:
        return state
    conversation = state.conversation.model_copy(update={"frame": frame_tokens(state.setup)})
    return state.model_copy(update={"conversation": conversation})


def sent_tokens(conversation: Conversation) -> int:
    """Return the estimated tokens of a model call about this conversation."""
    return conversation.frame + conversation.tokens


def message_budget(state: AgentState) -> int:
    """Return the estimated tokens that messages may have: of the budget, what instructions and tools leave."""
    whole = int(state.config.context_token_budget / state.calibration)
    return max(whole - state.conversation.frame, 0)


def halved_budget(sent: Conversation) -> int:
    """Return what messages may have where `sent` was too long for the provider: half of the whole."""
    return max(sent_tokens(sent) // 2 - sent.frame, 0)


def with_calibration(state: AgentState, sent: Conversation, input_tokens: int) -> AgentState:
    """Return the state after a reply to `sent`, for which the provider counted `input_tokens`; 0 says nothing."""
    estimate = sent_tokens(sent)
    if estimate < MIN_ESTIMATE or input_tokens <= 0:
        return state
    measured = min(max(input_tokens / estimate, LOWEST), HIGHEST)
    smoothed = state.calibration + (measured - state.calibration) * WEIGHT
    return state.model_copy(update={"calibration": round(smoothed, 4)})
