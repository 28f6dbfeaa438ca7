"""Templates of goals: their placeholders, text that is never expanded, and the errors of an invalid template."""

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.goals.templates import (
    MAX_PROMPT_BYTES,
    TEMPLATE_FUEL,
    TemplateProblem,
    render_template,
    template_problem,
)
from orga.workflows.types.goals.requests import MAX_TEMPLATE_BYTES

SUM = "{{ 7*7 }} {% if %} {# {{ goal }}"
"""Template syntax that no template may expand when it is data."""


@given(words=st.text(st.characters(codec="utf-8")))
def test_inserted_text_is_never_expanded_or_escaped(words: str) -> None:
    assert render_template("<{{ goal }}>", {"goal": words}) == f"<{words}>"


FAULTS: dict[str, tuple[str, str]] = {
    "an unknown name": ("a\n{{ gaol }}", "line 2: there is no placeholder 'gaol'; use goal, memory, answer_f"),
    "an unknown name in an unused branch": (
        "{% if memory %}{% else %}{% if gaol %}{% endif %}{% endif %}",
        "line 1: there is no placeholder 'gaol'",
    ),
    "a global of the engine": ("{{ range }}", "there is no placeholder 'range'"),
    "a constant": ("{{ true }}", "there is no placeholder 'true'"),
    "a sum": ("a\n\n{{ 7*7 }}", "line 3: '{{ 7*7 }}' is more than a template may say; write {{ NAME }}, or {% if NAME"),
    "a filter": ("{{ goal|indent(99999999) }}", "is more than a template may say"),
    "an attribute": ("{{ goal.__class__ }}", "is more than a template may say"),
    "a call": ("{{ debug() }}", "is more than a template may say"),
    "a text": ('{{ "}}" ~ goal }}', "is more than a template may say"),
    "a brace": ("{{{ goal }}}", "is more than a template may say"),
    "a loop": ("{% for x in goal %}{{ x }}{% endfor %}", "'{% for x in goal %}' is more than a template may say"),
    "an assignment": ("{% set goal = goal %}", "is more than a template may say"),
    "a macro": ("{% macro m() %}{% endmacro %}", "is more than a template may say"),
    "another file": ("{% include 'orga.toml' %}", "is more than a template may say"),
    "a comparison": ("{% if goal == memory %}{% endif %}", "is more than a template may say"),
    "a tag without its end": ("a\nb {{ goal ", "line 2: {{ is not closed; end it with }}"),
    "a comment without its end": ("{# note", "line 1: {# is not closed; end it with #}"),
    "a condition without its end": ("{% if goal %}", "line 1: unexpected end of input, expected end of block"),
    "an end without its condition": ("a\n{% endif %}", "line 2: unknown statement endif"),
    "a keyword of the engine": ("{% if not %}x{% endif %}", "line 1: "),
    "too many instructions": ("{{goal}}" * 1_000, f"takes more than {TEMPLATE_FUEL:,} instructions; use fewer tags"),
    "a long template": ("x" * (MAX_TEMPLATE_BYTES + 1), "has 16,001 bytes; at most 16,000 are allowed, so shorten it"),
    "a deep template": ("{% if goal %}" * 1_000, "line 1: "),
}


@pytest.mark.parametrize(("text", "says"), FAULTS.values(), ids=FAULTS)
def test_an_invalid_template_is_reported_with_its_remedy(text: str, says: str) -> None:
    assert says in template_problem("compression", text)


NOT_COUNTED = (
    "{{ '%0999999999d'|format(1) }}",
    "{% set a = goal %}" + "{% set a = a ~ a %}" * 60,
    "{% macro d(x) %}{{ x }}{{ x }}{% endmacro %}{{ d(d(d(d(d(d(d(d(goal)))))))) }}",
    "{% set ns = namespace(x=goal) %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
)


@pytest.mark.parametrize("bomb", NOT_COUNTED)
def test_work_outside_the_fuel_limit_is_refused_before_it_starts(bomb: str) -> None:
    """The folder with the configuration may belong to anyone."""
    began = process_time()
    assert "more than a template may say" in template_problem("summary", bomb)
    assert process_time() - began < 1


@given(
    text=st.lists(st.sampled_from(["{{", "}}", "{%", "%}", "{#", "#}", "-", " ", "if", "goal", '"', "\n"])).map("".join)
)
def test_any_template_is_rendered_or_refused(text: str) -> None:
    try:
        made = render_template(text, {"goal": SUM})
    except TemplateProblem as error:
        made = str(error)
    assert made.count(SUM) == made.count("7*7")


def test_the_size_of_a_prompt_is_bounded() -> None:
    values = {"goal": "ü" * 1_000}
    assert len(render_template("{{goal}}" * 124, values)) == 124_000
    with pytest.raises(TemplateProblem, match=r"^makes 251,000 bytes"):
        render_template("{{goal}}" * 125, values)
    most = {"goal": "x" * (MAX_PROMPT_BYTES - 8)}
    assert render_template("{{goal}}", most) == most["goal"]
    with pytest.raises(TemplateProblem, match=r"^makes 250,001 bytes; at most 250,000 are allowed, so fill in less$"):
        render_template("{{goal}}!", most)


def test_a_tag_on_its_own_line_leaves_no_empty_line() -> None:
    text = "a\n{# why #}\n  {% if goal %}\n{{ goal }}\n  {% else %}\nb\n  {% endif %}\nc\n"
    assert (render_template(text, {"goal": "g"}), render_template(text, {"goal": ""})) == ("a\ng\nc", "a\nb\nc")
