"""What a person reads before a run is rewound."""

from client.aftermath import Effect, Sent
from client.boundaries import Boundary
from client.cli.rewind import plan_lines
from client.delegates import Delegate
from client.rewind import RewindPlan
from tests.support.core import T0

BOUNDARY = Boundary("agent-1", "r", 1, 9, T0)
PLAN = RewindPlan(
    BOUNDARY,
    interventions=(Sent("steer", T0, "faster"), Sent("abort", T0, "enough")),
    effects=(Effect(2, "pay", T0, "pay 7"),),
    delegates=(Delegate("agent-1.2.0", 2, T0),),
)


def test_a_plan_says_what_becomes_of_what_came_later() -> None:
    lines = plan_lines(PLAN, keeps=True)
    assert [line.partition(":")[0] for line in lines] == [
        "delivered again",
        "left out",
        "done already, not undone",
        "aborted first",
    ]
    assert lines[-1].endswith("iteration 2, delegate agent-1.2.0, still at work")
