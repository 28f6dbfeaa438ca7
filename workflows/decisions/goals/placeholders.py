"""What a template of each prompt may fill in, and has to; what is wrong with one, told where a config is read."""

from collections.abc import Mapping
from typing import NamedTuple

from orga.workflows.decisions.goals.templates import TemplateFault, rendered, tags_of
from orga.workflows.types.goals.prompts import PromptName


class Placeholder(NamedTuple):
    """A name that stands for a value."""

    what: str
    sample: str | int = "x"
    """What a template is tried with."""
    is_needed: bool = False
    """Whether a model that is not told it cannot do the turn."""


_GOAL = Placeholder("the goal, which stands at the head of the conversation in any case")
_MEMORY = Placeholder("what the model keeps in mind; empty where that is nothing")
_STEPS = Placeholder(
    "the steps that are over, one a line, with what came of them; empty before the first", "- s1: done"
)

PLACEHOLDERS: Mapping[PromptName, Mapping[str, Placeholder]] = {
    "planning": {
        "goal": _GOAL,
        "skills": Placeholder("what a step may be done by, one a line", "- read: reads", is_needed=True),
        "answer_form": Placeholder("the JSON object that a plan is", "{}", is_needed=True),
        "steps": _STEPS,
        "memory": _MEMORY,
    },
    "execution": {
        "goal": _GOAL,
        "steps": Placeholder(
            "the steps of this round that need a call, one a line, and below each what its dependencies brought",
            "- s1 (read): g",
            is_needed=True,
        ),
        "answer_form": Placeholder(
            "which calls to make, and which the plan has; empty if the plan has all of them, and no model is asked",
            "Make them.",
            is_needed=True,
        ),
        "memory": Placeholder("what the model keeps in mind; empty where that is nothing, or no model is asked"),
    },
    "evaluation": {
        "goal": _GOAL,
        "steps": Placeholder("the steps to judge, one a line", "- s1: g", is_needed=True),
        "answer_form": Placeholder("the JSON object that scores are", "{}", is_needed=True),
        "memory": _MEMORY,
    },
    "decision": {
        "goal": _GOAL,
        "round": Placeholder("rounds of steps so far", 1),
        "max_rounds": Placeholder("`max_iterations`", 15),
        "errors": Placeholder("rounds in a row in which every step failed", 0),
        "scores": Placeholder(
            "the average of the latest three rounds, where it goes and how steeply; empty where none was judged",
            "4.0",
        ),
        "before": Placeholder("what was over before this round, on one line; may be empty", "s1 done"),
        "this_round": Placeholder("what came of each step of this round, one a line", "- s2: done", is_needed=True),
        "open_steps": Placeholder("the steps still to be done, one a line; may be empty", "- s3: g", is_needed=True),
        "memory": _MEMORY,
        "skills": Placeholder("the names of the skills", "read, search"),
        "answer_form": Placeholder("the JSON object that a decision is", "{}", is_needed=True),
    },
    "summary": {
        "goal": _GOAL,
        "ending": Placeholder("why the goal ends early; empty where it is done", "timeout", is_needed=True),
        "steps": _STEPS._replace(is_needed=True),
        "memory": _MEMORY,
    },
    "compression": {
        "goal": _GOAL,
        "memory": Placeholder("what the model keeps in mind", is_needed=True),
        "answer_form": Placeholder("the JSON object that the shorter one is", "{}", is_needed=True),
    },
}
"""By prompt. `answer_form` is never written by a template: the run reads what it asks for."""


def template_problem(name: PromptName, text: str) -> str:
    """Return what is wrong with a template and what to do, or "": it is tried with a value of each name, and none."""
    known = PLACEHOLDERS[name]
    try:
        shown = {each for tag in tags_of(text) if tag.is_shown for each in tag.names}
        rendered(text, {each: placeholder.sample for each, placeholder in known.items()})
        rendered(text, {each: 0 if placeholder.sample == 0 else "" for each, placeholder in known.items()})
    except TemplateFault as error:
        return str(error)
    lacking = [each for each, placeholder in known.items() if placeholder.is_needed and each not in shown]
    told = "; ".join(f"{{{{ {each} }}}}, {known[each].what}" for each in lacking)
    return f"lacks {told}: write it where it belongs" if lacking else ""
