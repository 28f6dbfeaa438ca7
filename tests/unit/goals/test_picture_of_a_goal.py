"""The picture of a goal's stages in `docs/goals.md` names all stages and actions of the code."""

import xml.etree.ElementTree as Xml
from typing import get_args

from orga.workflows.decisions.goals.replies import Action
from orga.workflows.types.goals.pursuit import GoalPhase
from tests.support.programs.orga_command import ROOT

PICTURE = ROOT / "docs" / "pictures" / "goal.svg"


def test_every_stage_is_a_box_and_every_decision_an_arrow() -> None:
    texts = [text.text or "" for text in Xml.parse(PICTURE).iter("{http://www.w3.org/2000/svg}text")]
    assert {stage.capitalize() for stage in get_args(GoalPhase)} <= set(texts)
    assert set(get_args(Action)) <= {action for text in texts for action in text.split(", ")}
