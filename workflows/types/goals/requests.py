"""The model calls of a goal: the input and the reply of each prompt, how to read the reply, and prompt templates."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self, cast, get_args

from pydantic_core import to_json

from orga.workflows.types.context import ReasonRequest, short_digest, text_digest
from orga.workflows.types.json_text import as_object, find_json_object, inner_values, parsed_answer_json
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.names import GoalPromptName
from orga.workflows.types.record import Record, replace_differing_fields
from orga.workflows.types.text import clean_text


class GoalRequest(ReasonRequest):
    """Input of the activities for a goal's prompts."""

    calls: tuple[ToolCall, ...] = ()
    """The round's calls whose arguments are in the plan, in order, for `goal_input`. They are made unchanged."""
    open_places: tuple[int, ...] = ()
    """The indexes in the round of the calls whose arguments the model has to write, for `goal_input`.

    Empty also if `calls` is empty: then the model writes all calls of the round.
    """
    answer: str = ""
    """The answer of a pipeline, for `goal_summary`: the output of its last step. No model is asked."""

    def with_round(self, calls: Sequence[ToolCall | None]) -> Self:
        """Return the request for the calls of a round. The model has to write the arguments of a call that is None."""
        planned = tuple(call for call in calls if call is not None)
        if not planned:
            return self
        open_places = tuple(index for index, call in enumerate(calls) if call is None)
        return replace_differing_fields(self, {"calls": planned, "open_places": open_places})

    @property
    def needs_model(self) -> bool:
        """True if the model has to write the arguments of a call."""
        return not self.calls or bool(self.open_places)

    @property
    def round_size(self) -> int:
        """The number of calls, or 0 if the model writes them all."""
        return len(self.calls) + len(self.open_places)

    @property
    def planned_calls(self) -> dict[int, ToolCall]:
        """The calls whose arguments are in the plan, by their index in the round."""
        indexes = (index for index in range(self.round_size) if index not in self.open_places)
        return dict(zip(indexes, self.calls, strict=False))

    def with_answer(self, answer: str) -> Self:
        """Return the request with this fixed answer. An empty answer stays unset."""
        return replace_differing_fields(self, {"answer": answer})


MAX_RECORDED_TOOLS = 5
"""Names in `GoalReply.called`."""


class GoalReply(Reply):
    """A reply to a goal's prompt."""

    problems: tuple[str, ...] = ()
    """Problems with the arguments of the plan in the reply."""
    repaired: bool = False
    """True if its text is JSON that had to be repaired."""
    called: tuple[str, ...] = ()
    """Tools that the model called although the prompt asks for no calls. These calls are not made."""

    def with_problems(self, problems: tuple[str, ...]) -> Self:
        return replace_differing_fields(self, {"problems": problems})

    def with_repaired(self, *, repaired: bool) -> Self:
        return replace_differing_fields(self, {"repaired": repaired})

    def with_called(self, calls: Sequence[ToolCall]) -> Self:
        """Return the reply with the first tools of these calls. Without calls the field stays unset."""
        names = tuple(dict.fromkeys(clean_text(call.name)[:MAX_SKILL_CHARS] for call in calls))[:MAX_RECORDED_TOOLS]
        return replace_differing_fields(self, {"called": names})


_REPLY_KEYS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "goal_plan": (("steps", "new_plan", "error"), "steps"),
    "goal_evaluate": (("steps", "relevance"), "steps"),
    "goal_decide": (("action",), ""),
    "goal_compress": (("memory",), ""),
}
"""By prompt: keys of the wanted object, the most certain first, and the key of its list, or "". A reply may be only
that list."""


def goal_reply_object(prompt: str, text: str) -> dict[str, Any]:
    """Return the JSON object in a reply to a prompt. Raise ValueError if there is none, or if several differ."""
    keys, listed = _REPLY_KEYS.get(prompt, ((), ""))
    return find_json_object(text, keys, listed)


def steps_in_reply(answer: Mapping[str, Any]) -> object:
    return answer.get("steps", answer.get("new_plan"))


_SKILL_KEYS = ("skill", "tool", "skill_name", "agent")
"""Keys of a step in which models name its tool or agent."""

_ARGUMENT_KEYS = ("arguments", "args", "parameters", "input")
"""Keys of a step in which models write its arguments. All but the first have to hold an object."""

MAX_SKILL_CHARS = 200


def step_skill(step: Mapping[str, Any]) -> str:
    """Return the tool or agent of a step as a model wrote it, or ""."""
    values = (step.get(key) for key in _SKILL_KEYS)
    names = (clean_text(value).strip()[:MAX_SKILL_CHARS] for value in values if isinstance(value, str))
    return next(filter(None, names), "")


def step_arguments(step: Mapping[str, Any]) -> object:
    """Return the arguments of a step as an object, even if they are JSON text. Without one, return what is there."""
    for key in _ARGUMENT_KEYS:
        given = _parsed_text(step.get(key))
        if isinstance(given, dict):
            return cast("dict[str, Any]", given)
    return _parsed_text(step.get(_ARGUMENT_KEYS[0]))


REFERENCE_KEY = "$step"
"""The key of a reference in a step's arguments to the value of another step: `{"$step": "s1", "path": ["id"]}`."""


def referred_steps(arguments: object) -> Iterator[str]:
    if (step := as_object(arguments).get(REFERENCE_KEY)) is not None:
        yield str(step)
    else:
        for value in inner_values(arguments):
            yield from referred_steps(value)


def _parsed_text(given: object) -> object:
    """Return the value of a JSON text, None for blank text, and anything else unchanged."""
    if not isinstance(given, str):
        return given
    try:
        return parsed_answer_json(given) if given.strip() else None
    except ValueError:
        return given


def goal_prompt_in(text: str) -> str:
    """Return the prompt's name in a message, or "" if it is not a prompt."""
    return text[1:].partition("]")[0] if text.startswith("[goal_") else ""


PromptName = Literal["planning", "execution", "evaluation", "decision", "summary", "compression"]

PROMPT_NAMES: tuple[PromptName, ...] = get_args(PromptName)

PROMPT_OF: Mapping[GoalPromptName, PromptName] = {
    "goal_plan": "planning",
    "goal_input": "execution",
    "goal_evaluate": "evaluation",
    "goal_decide": "decision",
    "goal_summary": "summary",
    "goal_compress": "compression",
}

MAX_TEMPLATE_BYTES = 16_000
"""Bytes of each template. Each segment of a run carries them all."""


class PromptTemplates(Record):
    """The templates that replace the default ones."""

    digest: str
    """Digest of the texts. The run's journal names it."""
    texts: dict[PromptName, str]

    @classmethod
    def of(cls, texts: Mapping[PromptName, str]) -> Self | None:
        """Return the templates with their digest, or None if there are none."""
        if not texts:
            return None
        canonical = to_json(sorted(texts.items())).decode()
        return cls(digest=short_digest(text_digest(canonical)), texts=dict(texts))
