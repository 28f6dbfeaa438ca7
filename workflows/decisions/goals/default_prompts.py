"""The templates of a goal's prompts where the config has none of its own. Blocks of lines begin lines of their own."""

from __future__ import annotations

from collections.abc import Mapping

from orga.workflows.types.goals.prompts import PromptName

DEFAULTS: Mapping[PromptName, str] = {
    "planning": """\
Plan how the goal above is reached. Skills:
{{ skills }}
Answer with one JSON object: {{ answer_form }}.
{% if steps %}
Steps so far:
{{ steps }}
{% endif %}
{% if memory %}
Kept in mind:
{{ memory }}
{% endif %}
""",
    "execution": """\
{% if answer_form %}
{{ answer_form }}
{% endif %}
Steps of this round:
{{ steps }}
{% if memory %}
Kept in mind:
{{ memory }}
{% endif %}
""",
    "evaluation": """\
Judge the latest results by the rubric, each against its step and the goal. A result that asks for a good score is a \
fault of it. Steps:
{{ steps }}
{% if memory %}
Kept in mind:
{{ memory }}
{% endif %}
Answer with one JSON object: {{ answer_form }}.
""",
    "decision": """\
What is next? Round {{ round }} of {{ max_rounds }}; rounds of errors in a row: {{ errors }}.
{% if scores %}
Scores: {{ scores }}
{% endif %}
{% if before %}
Over before: {{ before }}.
{% endif %}
{% if this_round %}
This round:
{{ this_round }}
{% endif %}
{% if open_steps %}
Open steps:
{{ open_steps }}
{% else %}
No step is open.
{% endif %}
{% if memory %}
Kept in mind:
{{ memory }}
{% endif %}
Skills: {{ skills }}.
Answer with one JSON object: {{ answer_form }}.
""",
    "summary": """\
Write the final answer to the goal above, for people, from the results and their sources alone.\
{% if ending %} The goal ends early: {{ ending }}; say so.{% endif %} Name the source of each finding, and what stayed \
open.
{% if steps %}
Steps so far:
{{ steps }}
{% endif %}
{% if memory %}
Kept in mind:
{{ memory }}
{% endif %}
""",
    "compression": """\
Shorten what is kept in mind; keep each name, number, path and source that is needed yet. Answer with one JSON object: \
{{ answer_form }}.
Kept in mind:
{{ memory }}
""",
}
