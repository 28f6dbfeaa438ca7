"""`[goals.prompts]` is read from the configuration, kept in the setup of a goal, and documented in its guide."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json

from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.client.config.file import load_config
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.risks import risks
from orga.client.errors import ConfigError
from orga.client.workers.parts import configured_parts
from orga.workflows.decisions.goals.prompts import DEFAULT_PROMPTS
from orga.workflows.decisions.goals.templates import PLACEHOLDERS
from orga.workflows.types.goals.requests import MAX_TEMPLATE_BYTES, PROMPT_NAMES, PromptTemplates
from orga.workflows.types.setup import PrepareRequest
from tests.support.values.configured import config_error_at
from tests.support.values.goals import showing_all

PLANNING = "Plan for {{ goal }} by {{ skills }}: {{ answer_form }}"


def a_worker(prompts: dict[str, str], folder: Path) -> Any:
    config = OrgaConfig.model_validate({"goals": {"prompts": prompts}}, extra="forbid")
    return configured_parts(config, {}, folder, knows_attributes=False).agents


async def test_the_setup_of_a_goal_has_its_templates_and_that_of_an_agent_none(tmp_path: Path) -> None:
    agents = a_worker({"planning": PLANNING, "summary": "  \n"}, tmp_path)
    assert isinstance(agents, ConfiguredAgents)
    goal = await agents.setup(PrepareRequest(), is_goal=True)
    assert goal.prompts == PromptTemplates.of({"planning": PLANNING})
    recorded = await agents.setup(PrepareRequest())
    assert "prompts" not in recorded.model_dump(exclude_unset=True)
    without = await a_worker({"planning": ""}, tmp_path).setup(PrepareRequest(), is_goal=True)
    assert "prompts" not in without.model_dump(exclude_unset=True)


async def test_the_longest_templates_fit_a_setup(tmp_path: Path) -> None:
    long = {name: showing_all(name).ljust(MAX_TEMPLATE_BYTES, "\x7f") for name in PROMPT_NAMES}
    setup = await a_worker(long, tmp_path).setup(PrepareRequest(), is_goal=True)
    assert len(to_json(setup.prompts)) < 120_000


@pytest.mark.parametrize(
    ("toml", "line", "says"),
    [
        pytest.param(
            '[goals.prompts]\nplanning = "{{ skills }}"\n',
            2,
            "goals.prompts.planning: lacks {{ answer_form }}, the form of a plan as a JSON object: insert each where",
            id="a needed one is missing",
        ),
        pytest.param(
            '[goals.prompts]\nsummary = """\nSum up.\n{{ gaol }} {{ ending }} {{ steps }}\n"""\n',
            2,
            "goals.prompts.summary: line 2: there is no placeholder 'gaol'; use goal, ending, steps, memory",
            id="no such placeholder",
        ),
        pytest.param(
            '[goals.prompts]\nplan = "x"\n', 2, "goals.prompts.plan: unknown key; did you mean 'planning'?", id="a key"
        ),
        pytest.param("[goals.prompts]\nsummary = 3\n", 2, "goals.prompts.summary: 3 should be", id="no text"),
    ],
)
def test_a_mistake_is_reported_with_file_line_key_and_remedy(tmp_path: Path, toml: str, line: int, says: str) -> None:
    assert says in config_error_at(tmp_path, toml, line)


def test_a_template_can_come_from_the_environment(tmp_path: Path) -> None:
    config = load_config(folder=tmp_path, env={"ORGA_GOALS__PROMPTS__PLANNING": PLANNING})
    assert config.goals.prompts.templates == PromptTemplates.of({"planning": PLANNING})
    with pytest.raises(ConfigError, match=r"ORGA_GOALS__PROMPTS__PLANNING: goals\.prompts\.planning: lacks"):
        load_config(folder=tmp_path, env={"ORGA_GOALS__PROMPTS__PLANNING": "x"})


def test_templates_need_no_trust(tmp_path: Path) -> None:
    """The instructions of an agent need none either."""
    assert risks({"goals": {"prompts": {"planning": PLANNING}}}, tmp_path) == []


GUIDE = (Path(__file__).parents[3] / "docs" / "goal-prompts.md").read_text()


def test_the_guide_shows_the_default_templates() -> None:
    *_, block = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    shown = tomllib.loads(block)["goals"]["prompts"]
    assert {name: text.strip() for name, text in shown.items()} == {
        each: DEFAULT_PROMPTS[each].strip() for each in DEFAULT_PROMPTS
    }


def test_the_guide_lists_each_placeholder() -> None:
    rows = re.findall(r"^\| `?(\w+)`? \| `(\w+)`(, needed)? \| (.*) \|$", GUIDE, re.MULTILINE)
    reported = {(name, each): (what, bool(needed)) for name, each, needed, what in rows}
    known = {
        (name if each != "goal" else "all", each): (placeholder.what, placeholder.is_needed)
        for name, placeholders in PLACEHOLDERS.items()
        for each, placeholder in placeholders.items()
    }
    assert reported == known


def test_a_command_without_templates_does_not_load_the_template_engine(tmp_path: Path) -> None:
    asks = (
        "import sys; from orga.client.config.file import load_config; load_config(); print('minijinja' in sys.modules)"
    )
    reported = [
        subprocess.run([sys.executable, "-c", asks], cwd=tmp_path, capture_output=True, text=True, check=True, env=env)
        for env in ({}, {"ORGA_GOALS__PROMPTS__PLANNING": PLANNING})
    ]
    assert [each.stdout.strip() for each in reported] == ["False", "True"]
