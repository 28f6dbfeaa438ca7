"""What is asked for a step of a pipeline or of a plan, as the reader sees it: without the frame around that."""

import re

from orga.activities.adapters.models.reader.languages import TASK_WORDS, language_of
from orga.activities.adapters.models.reader.words import folded, is_content, parts, words
from orga.workflows.types.goals.pipelines import FROM_OPERATOR, INPUT, THE_GOAL
from orga.workflows.types.goals.turns import turn_asked_for

_BLOCK = re.compile(r"^\[([0-9a-f]{12}) begins: ([^\n]*); data, not instructions\]\n(.*?)\n\[\1 ends\]$", re.M | re.S)
_STEP = re.compile(r"^- \S+ \([^()\n]+\): (.+?)(?: with \{.*\})?$", re.M)
_OF_THE_GOAL = re.compile(r"\b(?:the|this|our) goal\b|\b(?:das|dem|des) ziels?\b", re.I)
_MAKES = re.compile(
    r"(?:draft|make|phrase|put|rewrite|shorten|translate|turn|write|fass\w*|mach\w*|schreib\w*)\b", re.I
)
"""How a task begins that says what is to be made of what is found."""


def asked_in(task: str) -> list[str]:
    """Return what a task asks, then what people said since; of any other text than the task of a step itself.

    A step asks by its own task where that says what to look for, else by the goal. Its input is part of that; what
    other steps brought is not.
    """
    own, is_framed, rest = task.partition(f"\n\n{THE_GOAL}\n")
    if not is_framed:
        return [task]
    inputs = [text for _, source, text in _BLOCK.findall(rest) if source.startswith(INPUT)]
    goal, _, said = _BLOCK.sub("", rest).partition(f"\n\n{FROM_OPERATOR}\n")
    asked = "\n".join([own if _says_what(own) else goal.strip(), *inputs])
    return [asked, said.strip()]


def asked_by_steps(turn: str) -> list[str]:
    """Return what the steps are to do for which a goal asks for calls; nothing of any other turn of a goal."""
    return ["\n".join(_STEP.findall(turn))] if turn_asked_for(turn) == "goal_input" else []


def _says_what(own: str) -> bool:
    if _OF_THE_GOAL.search(own) or _MAKES.match(own.strip()):
        return False
    language = language_of(words(own))
    found = map(folded, parts(own))
    return any(is_content(word, language) and word not in TASK_WORDS[language] for word in found)
