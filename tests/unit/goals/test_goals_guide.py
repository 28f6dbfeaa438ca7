"""The table "Settings" of docs/goals.md names every key of a goal's config, with its default."""

import re

from orga.workflows.types.goals.goal_input import GoalConfig
from tests.support.programs.orga_command import ROOT

GUIDE = (ROOT / "docs" / "goals.md").read_text(encoding="utf-8")
SETTINGS = GUIDE.partition("\n## Settings\n")[2].partition("\n## ")[0]


def keys_in(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


def value_in(cell: str) -> object:
    """Return the default in a cell: a word in code, a number, or none."""
    if cell == "none":
        return None
    return cell[1:-1] if cell.startswith("`") else float(cell.replace(",", ""))


def test_the_guide_lists_every_setting_of_a_goal_with_its_default() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", SETTINGS, re.MULTILINE)
    reported = {key: value_in(cell) for keys, cell in rows for key in keys_in(keys)}
    [others] = re.findall(r"^(.*(?:\n.+)*) are those of an agent\.$", SETTINGS, re.MULTILINE)
    of_an_agent = set(keys_in(others))
    assert reported == GoalConfig().model_dump(exclude=of_an_agent)
    assert reported.keys() | of_an_agent == GoalConfig.model_fields.keys()
