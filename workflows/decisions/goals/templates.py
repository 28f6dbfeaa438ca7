"""Templates of prompts: placeholders and conditions, filled in by minijinja. Inserted text is data, never expanded.

Expressions may only name values, because a template may come from an untrusted folder. Each template is rendered on
trial when its config is read. minijinja limits instructions, not bytes: a few `~`, `|format` and `|indent` could make
gigabytes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from orga.workflows.types.goals.requests import MAX_TEMPLATE_BYTES, PromptName

TEMPLATE_FUEL = 2_000
"""Instructions of minijinja in one rendering. Each tag takes a few."""

MAX_PROMPT_BYTES = 250_000

_OPEN = re.compile(r"\{([{%#])")
_CLOSE = {"{": "}}", "%": "%}", "#": "#}"}
_NAME = r"[a-z][a-z_]*"
_TERM = rf"(?:not\s+)?{_NAME}"
_VALUE_TAG = re.compile(rf"-?\s*({_NAME})\s*-?")
_CONDITION_TAG = re.compile(rf"-?\s*(?:if|elif)\s+({_TERM}(?:\s+(?:and|or)\s+{_TERM})*)\s*-?")
_BARE_TAG = re.compile(r"-?\s*(?:else|endif)\s*-?")
_OPERATORS = frozenset({"and", "or", "not"})
_SHOWN_CHARS = 60

TEMPLATE_HINT = (
    "write {{ NAME }}, or {% if NAME %}, {% elif NAME %}, {% else %}, {% endif %}, with not, and, or between names"
)


class TemplateProblem(ValueError):
    """A problem of a template, with the remedy."""


class TemplateTag(NamedTuple):
    line: int
    names: tuple[str, ...]
    is_shown: bool
    """True if its value is inserted. Otherwise it is a condition."""


def parsed_tags(text: str) -> list[TemplateTag]:
    """Return the tags in order. Raise TemplateProblem if the text is too long or has a tag that is not allowed."""
    if (size := len(text.encode("utf-8", "replace"))) > MAX_TEMPLATE_BYTES:
        raise TemplateProblem(f"has {size:,} bytes; at most {MAX_TEMPLATE_BYTES:,} are allowed, so shorten it")
    return list(_iterate_tags(text))


def _iterate_tags(text: str) -> Iterator[TemplateTag]:
    at = 0
    while (opened := _OPEN.search(text, at)) is not None:
        line = text.count("\n", 0, opened.start()) + 1
        kind, closing = opened[1], _CLOSE[opened[1]]
        end = text.find(closing, opened.end())
        if end < 0:
            raise TemplateProblem(f"line {line}: {opened[0]} is not closed; end it with {closing}")
        at = end + len(closing)
        if kind != "#":
            yield _parsed_tag(line, kind, text[opened.end() : end])


def _parsed_tag(line: int, kind: str, inside: str) -> TemplateTag:
    if kind == "{" and (shown := _VALUE_TAG.fullmatch(inside)):
        return TemplateTag(line, (shown[1],), is_shown=True)
    if kind == "%" and (condition := _CONDITION_TAG.fullmatch(inside)):
        return TemplateTag(line, tuple(word for word in condition[1].split() if word not in _OPERATORS), is_shown=False)
    if kind == "%" and _BARE_TAG.fullmatch(inside):
        return TemplateTag(line, (), is_shown=False)
    tag = f"{{{kind}{inside[:_SHOWN_CHARS]}{_CLOSE[kind]}"
    raise TemplateProblem(f"line {line}: {tag!r} is more than a template may say; {TEMPLATE_HINT}")


def render_template(text: str, values: Mapping[str, str | int]) -> str:
    """Return the filled-in text. Raise TemplateProblem if the template is invalid, or if the text becomes too long."""
    tags = parsed_tags(text)
    if unknown := next(((tag.line, name) for tag in tags for name in tag.names if name not in values), None):
        raise TemplateProblem(f"line {unknown[0]}: there is no placeholder {unknown[1]!r}; use {', '.join(values)}")
    shown = [name for tag in tags if tag.is_shown for name in tag.names]
    size = len(text.encode()) + sum(len(str(values[name]).encode()) for name in shown)
    if size > MAX_PROMPT_BYTES:
        raise TemplateProblem(f"makes {size:,} bytes; at most {MAX_PROMPT_BYTES:,} are allowed, so fill in less")
    # imported here because a command that reads a config without templates does not need it
    from minijinja import Environment, TemplateError

    environment = Environment(
        fuel=TEMPLATE_FUEL,
        undefined_behavior="strict",
        trim_blocks=True,
        lstrip_blocks=True,
        pycompat=False,
        debug=False,
    )
    try:
        return environment.render_str(text, **values).strip()
    except TemplateError as error:
        if error.kind == "OutOfFuel":
            raise TemplateProblem(f"takes more than {TEMPLATE_FUEL:,} instructions; use fewer tags") from None
        raise TemplateProblem(f"line {error.line}: {error.detail or error.message}") from None


class Placeholder(NamedTuple):
    what: str
    sample: str | int = "x"
    """A sample value for the check of a template."""
    is_needed: bool = False
    """True if a model cannot answer the prompt without it."""


_GOAL = Placeholder("the goal, which is the first message of the conversation in any case")
_MEMORY = Placeholder("the model's memory; empty if there is none")
_STEPS = Placeholder("the finished steps with their results, one per line; empty before the first", "- s1: done")

PLACEHOLDERS: Mapping[PromptName, Mapping[str, Placeholder]] = {
    "planning": {
        "goal": _GOAL,
        "skills": Placeholder("the tools and agents for steps, one per line", "- read: reads", is_needed=True),
        "answer_form": Placeholder("the form of a plan as a JSON object", "{}", is_needed=True),
        "steps": _STEPS,
        "memory": _MEMORY,
    },
    "execution": {
        "goal": _GOAL,
        "steps": Placeholder(
            "the steps of this round that need a call, one per line, each above the results of its dependencies",
            "- s1 (read): g",
            is_needed=True,
        ),
        "answer_form": Placeholder(
            "the calls to make, and those that the plan has; empty if it has all of them, so that no model is asked",
            "Make them.",
            is_needed=True,
        ),
        "memory": Placeholder("the model's memory; empty if there is none, or if no model is asked"),
    },
    "evaluation": {
        "goal": _GOAL,
        "steps": Placeholder("the steps to judge, one per line", "- s1: g", is_needed=True),
        "answer_form": Placeholder("the form of the scores as a JSON object", "{}", is_needed=True),
        "memory": _MEMORY,
    },
    "decision": {
        "goal": _GOAL,
        "round": Placeholder("rounds of steps so far", 1),
        "max_rounds": Placeholder("`max_iterations`", 15),
        "errors": Placeholder("rounds in a row in which every step failed", 0),
        "scores": Placeholder(
            "the average score of the latest three rounds with its trend; empty if none was judged",
            "4.0",
        ),
        "before": Placeholder("the steps that were finished before this round, on one line; may be empty", "s1 done"),
        "this_round": Placeholder("the outcome of each step of this round, one per line", "- s2: done", is_needed=True),
        "open_steps": Placeholder("the open steps, one per line; may be empty", "- s3: g", is_needed=True),
        "memory": _MEMORY,
        "skills": Placeholder("the names of the skills", "read, search"),
        "answer_form": Placeholder("the form of a decision as a JSON object", "{}", is_needed=True),
    },
    "summary": {
        "goal": _GOAL,
        "ending": Placeholder("why the goal ends early; empty if it is completed", "timeout", is_needed=True),
        "steps": _STEPS._replace(is_needed=True),
        "memory": _MEMORY,
    },
    "compression": {
        "goal": _GOAL,
        "memory": Placeholder("the model's memory", is_needed=True),
        "answer_form": Placeholder("the form of the shorter memory as a JSON object", "{}", is_needed=True),
    },
}
"""The placeholders of each prompt. The run fills in `answer_form`, because it has to parse the answer."""


def template_problem(name: PromptName, text: str) -> str:
    """Return the problem of a template with its remedy, or "". The template is tried with samples and empty values."""
    placeholders = PLACEHOLDERS[name]
    try:
        shown = {each for tag in parsed_tags(text) if tag.is_shown for each in tag.names}
        samples = {each: placeholder.sample for each, placeholder in placeholders.items()}
        render_template(text, samples)
        render_template(text, {each: 0 if sample == 0 else "" for each, sample in samples.items()})
    except TemplateProblem as error:
        return str(error)
    lacking = [each for each, placeholder in placeholders.items() if placeholder.is_needed and each not in shown]
    listed = "; ".join(f"{{{{ {each} }}}}, {placeholders[each].what}" for each in lacking)
    return f"lacks {listed}: insert each where it belongs" if lacking else ""
