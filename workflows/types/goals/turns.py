"""The model calls of a goal: what goes with one beside its context, and what comes back beside its words."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from orga.workflows.types.context import ReasonRequest
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.names import GoalTurn
from orga.workflows.types.record import replace_fields
from orga.workflows.types.text import clean_text


class GoalRequest(ReasonRequest):
    """Input of the activities of a goal's turns."""

    calls: tuple[ToolCall, ...] = ()
    """Of `goal_input`: the calls of the round whose arguments the plan has, in order. They are made as they are."""
    open_places: tuple[int, ...] = ()
    """Of `goal_input`: places in the round, from 0, of the calls that the model makes beside `calls`."""
    answer: str = ""
    """Of `goal_summary`: that of a pipeline, whose last step has given it. No model is asked."""

    def with_round(self, calls: Sequence[ToolCall | None]) -> Self:
        """Return the request for the calls of a round; None for each that the model makes. Empty fields stay unset."""
        planned = tuple(call for call in calls if call is not None)
        if not planned:
            return self
        open_places = tuple(place for place, call in enumerate(calls) if call is None)
        return replace_fields(self, {"calls": planned, **({"open_places": open_places} if open_places else {})})

    @property
    def asks_model(self) -> bool:
        """Whether the model has to make a call of the round."""
        return not self.calls or bool(self.open_places)

    @property
    def size(self) -> int:
        """Calls of the round, if the plan has some of them."""
        return len(self.calls) + len(self.open_places)

    @property
    def planned(self) -> dict[int, ToolCall]:
        """The plan's calls by their places in the round, in order."""
        places = (place for place in range(self.size) if place not in self.open_places)
        return dict(zip(places, self.calls, strict=False))

    def with_answer(self, answer: str) -> Self:
        """Return the request for just this answer; none is not written."""
        return replace_fields(self, {"answer": answer}) if answer else self


class GoalReply(Reply):
    """A reply of the model, and what was found wrong with the arguments of its plan."""

    problems: tuple[str, ...] = ()
    repaired: bool = False
    """Whether its text is JSON that was nearly JSON as the model wrote it."""

    def with_problems(self, problems: tuple[str, ...]) -> Self:
        """Return the reply with what is wrong with it; nothing is not written."""
        return replace_fields(self, {"problems": problems}) if problems else self

    def with_repaired(self, *, repaired: bool) -> Self:
        """Return the reply with whether its text was repaired; that it was not is not written."""
        return replace_fields(self, {"repaired": True}) if repaired else self


_SKILL = ("skill", "tool", "skill_name", "agent")
"""Keys of a step in which models write what it is done by."""

MAX_SKILL_CHARS = 200


def skill_named(step: Mapping[str, Any]) -> str:
    """Return what a step is done by, as a model wrote it; "" for nothing."""
    said = (step.get(key) for key in _SKILL)
    named = (clean_text(each).strip()[:MAX_SKILL_CHARS] for each in said if isinstance(each, str))
    return next(filter(None, named), "")


def asking(turn: GoalTurn, text: str) -> str:
    """Return the message that asks for a turn."""
    return f"[{turn}] {text}"


def turn_asked_for(text: str) -> str:
    """Return the turn that a message asks for, "" where it asks for none."""
    return text[1:].partition("]")[0] if text.startswith("[goal_") else ""
