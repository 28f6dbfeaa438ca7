"""The model calls of a goal: what goes with one beside its context, and what comes back beside its words."""

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

from orga.workflows.types.context import ReasonRequest
from orga.workflows.types.json_text import find_json_object, parsed_answer_json
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.names import GoalPromptName
from orga.workflows.types.record import replace_differing_fields
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
        return replace_differing_fields(self, {"calls": planned, "open_places": open_places})

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
        return replace_differing_fields(self, {"answer": answer})


MAX_RECORDED_TOOLS = 5
"""Tools that are named of those that the model called."""


class GoalReply(Reply):
    """A reply of the model, and what was found wrong with the arguments of its plan."""

    problems: tuple[str, ...] = ()
    repaired: bool = False
    """Whether its text is JSON that was nearly JSON as the model wrote it."""
    called: tuple[str, ...] = ()
    """The tools that the model called in a turn that asks for no calls; none of these calls is made."""

    def with_problems(self, problems: tuple[str, ...]) -> Self:
        """Return the reply with what is wrong with it; nothing is not written."""
        return replace_differing_fields(self, {"problems": problems})

    def with_repaired(self, *, repaired: bool) -> Self:
        """Return the reply with whether its text was repaired; that it was not is not written."""
        return replace_differing_fields(self, {"repaired": repaired})

    def with_called(self, calls: Sequence[ToolCall]) -> Self:
        """Return the reply with the tools of these calls, the first ones; none is not written."""
        names = tuple(dict.fromkeys(clean_text(call.name)[:MAX_SKILL_CHARS] for call in calls))[:MAX_RECORDED_TOOLS]
        return replace_differing_fields(self, {"called": names})


_REPLY_KEYS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "goal_plan": (("steps", "new_plan", "error"), "steps"),
    "goal_evaluate": (("steps", "relevance"), "steps"),
    "goal_decide": (("action",), ""),
    "goal_compress": (("memory",), ""),
}
"""By turn: the keys that tell its object from others, and the key of a list that may stand alone."""


def goal_reply_object(turn: str, text: str) -> dict[str, Any]:
    """Return the JSON object that a reply to a turn holds.

    Raises:
        ValueError: There is none, or several that say different things.
    """
    keys, listed = _REPLY_KEYS.get(turn, ((), ""))
    return find_json_object(text, keys, listed)


def steps_in_reply(said: Mapping[str, Any]) -> object:
    """Return the steps of a plan as a model wrote them; None for none."""
    return said.get("steps", said.get("new_plan"))


_SKILL_KEYS = ("skill", "tool", "skill_name", "agent")
"""Keys of a step in which models write what it is done by."""

_ARGUMENT_KEYS = ("arguments", "args", "parameters", "input")
"""Keys of a step in which models write its arguments; under the others only an object is taken for them."""

MAX_SKILL_CHARS = 200


def step_skill(step: Mapping[str, Any]) -> str:
    """Return what a step is done by, as a model wrote it; "" for nothing."""
    said = (step.get(key) for key in _SKILL_KEYS)
    named = (clean_text(each).strip()[:MAX_SKILL_CHARS] for each in said if isinstance(each, str))
    return next(filter(None, named), "")


def step_arguments(step: Mapping[str, Any]) -> object:
    """Return the arguments of a step: an object, also if it was written as JSON text; else what stands in its place."""
    for key in _ARGUMENT_KEYS:
        given = _parsed_text(step.get(key))
        if isinstance(given, dict):
            return cast("dict[str, Any]", given)
    return _parsed_text(step.get(_ARGUMENT_KEYS[0]))


def _parsed_text(given: object) -> object:
    """Return the value that a JSON text is; the text if it is none, and None for an empty one."""
    if not isinstance(given, str):
        return given
    try:
        return parsed_answer_json(given) if given.strip() else None
    except ValueError:
        return given


def goal_prompt_message(turn: GoalPromptName, text: str) -> str:
    """Return the message that asks for a turn."""
    return f"[{turn}] {text}"


def goal_prompt_in(text: str) -> str:
    """Return the turn that a message asks for, "" where it asks for none."""
    return text[1:].partition("]")[0] if text.startswith("[goal_") else ""
