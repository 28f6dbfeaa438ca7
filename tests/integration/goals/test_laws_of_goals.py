"""Laws of goals: random goals run on a real server, are replayed, and are checked from their journals."""

import pytest
from hypothesis import given
from temporalio.client import Client

from tests.support.runs.quick import quick, some
from tests.support.scenarios.goal_laws import LAWS
from tests.support.scenarios.goal_stage import play_goal
from tests.support.scenarios.goals import GoalScenario, goals

__all__ = ["quick"]


@pytest.mark.timeout(1_200)
@some(40)
@given(scenario=goals())
async def test_the_laws_hold_for_any_goal(quick: Client, scenario: GoalScenario) -> None:
    played = await play_goal(quick, scenario)
    for law in LAWS:
        law(played)
