"""Deliveries of a goal's final answer: the channels, their requests, and the notes about them."""

from __future__ import annotations

from hashlib import sha256

from orga.workflows.decisions.recall import call_behalf
from orga.workflows.types.goals.deliveries import (
    MAX_ANSWER_BYTES,
    Channel,
    Delivered,
    DeliveryRequest,
    full_answer_location,
)
from orga.workflows.types.goals.goal_result import GoalResult
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.text import clip_json, known_names_hint, one_line

GOAL_CHARS = 200
DETAIL_CHARS = 300
EMPTY_ANSWER_TEXT = "(nothing was found)"


def unknown_deliveries(wanted: tuple[str, ...] | None, known: tuple[str, ...]) -> str:
    unknown = [name for name in wanted or () if name not in known]
    if not unknown:
        return ""
    hint = known_names_hint(unknown[0], known) if known else "none is configured, see [goals.deliveries] of orga.toml"
    return f"deliver: there is no delivery {', '.join(map(repr, unknown))}; {hint}"


CHANNELS_UNKNOWN = "the goal ended before its worker had reported its channels; nothing was sent"


def undelivered_without_setup(state: GoalState) -> tuple[Delivered, ...]:
    """Return failed deliveries for the named channels if the goal has no setup. Default channels are unknown then."""
    names = state.deliver if state.setup is None else None
    return tuple(Delivered(name=name, kind="unknown", status="failed", error=CHANNELS_UNKNOWN) for name in names or ())


def chosen_channels(state: GoalState, *, is_in_vain: bool = False) -> tuple[Channel, ...]:
    """Return the channels that the starter named, or the default ones if none were named.

    A goal without results is not stored as knowledge.
    """
    known = state.setup.deliveries if state.setup else ()
    known = tuple(channel for channel in known if channel.kind != "memory" or not is_in_vain)
    if state.deliver is None:
        return tuple(channel for channel in known if channel.default)
    return tuple(channel for channel in known if channel.name in state.deliver)


def delivery_request(state: GoalState, ended: GoalResult, channel: Channel, goal_id: str) -> DeliveryRequest:
    ending = ended.termination
    text = ended.output or EMPTY_ANSWER_TEXT
    given = DeliveryRequest(
        name=channel.name,
        key=delivery_key(state.origin, ending.reason, text, channel.name),
        agent=state.name,
        goal=one_line(state.input.task, GOAL_CHARS),
        reason=ending.reason,
        detail=one_line(ending.detail, DETAIL_CHARS),
        confidence=ended.confidence,
        text=clip_json(text, MAX_ANSWER_BYTES, full_answer_location(goal_id)),
        size=len(text),
    )
    return given.with_behalf(call_behalf(state)) if channel.kind == "memory" else given


def delivery_key(origin: str, reason: str, text: str, name: str) -> str:
    """Return the key of a delivery, made from the goal, its ending, its answer and the channel."""
    parts = (origin, reason, sha256(text.encode("utf-8", "replace")).hexdigest(), name)
    return f"goal_{sha256('/'.join(parts).encode()).hexdigest()[:32]}"


def with_delivery(state: GoalState, delivered: Delivered) -> GoalState:
    event = "Delivered" if delivered.status == "delivered" else "DeliveryFailed"
    return state.with_note(event, **delivered.model_dump(exclude={"status"}, exclude_defaults=True))
