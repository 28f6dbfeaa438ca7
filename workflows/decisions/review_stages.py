"""What stands between a reply and its effects, in order, and what may follow what: read by loop, journal and laws."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from orga.workflows.types.messages import ToolCall
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.gate import Decision

StageName = Literal["approval", "budget", "check", "critics", "confirmation"]

Standing = Literal[
    "proposed", "held", "approved", "allowed", "asked", "reviewed", "confirmed", "ended", "denied", "rejected"
]
"""Of a call or an answer. `held`: the gate wants a person's yes; `asked`: a critic does; `ended`: a critic ends the
run; `denied`: by the gate or a person; `rejected`: by a critic."""

Word = Decision | Literal["yes", "no"] | Literal["accepted", "revise", "asked", "ended", "skipped"]
"""The gate's, a person's on what it holds, a critic's."""

Follows = Mapping[Standing, Mapping[Word, Standing]]
"""By where something stands, what may be said of it, and where it stands then; nothing else may."""

BY_GATE: Mapping[Word, Standing] = {"allow": "allowed", "deny": "denied", "invalid": "denied", "approval": "held"}
BY_CRITIC: Mapping[Word, Standing] = {
    "accepted": "reviewed",
    "revise": "rejected",
    "skipped": "rejected",
    "asked": "asked",
    "ended": "ended",
}
AT_LAST: Mapping[Word, Standing] = {"allow": "confirmed", "deny": "denied", "invalid": "denied", "approval": "denied"}
"""The gate's words where nobody is asked any more."""


BEHIND_THE_GATE: frozenset[Word] = frozenset({"yes", "no", *BY_CRITIC})
"""Words that others than the gate say."""


def told_word(event: str, data: Mapping[str, Any]) -> Any:
    """Return what a note tells to have been said behind the gate, of a call or an answer; None where it is no word."""
    if event == "ApprovalResolved" and data.get("kind") == "call":
        return "yes" if data.get("approved") else "no"
    return data.get("then", "") if event == "CritiqueEvaluated" else None


def is_told_by_asker(question: Mapping[str, Any]) -> bool:
    """Return whether the stage that asks people this says itself what follows: their answer is no word then."""
    return bool(question.get("critic"))


def _asks_for_more(setup: Setup, _: ToolCall | None) -> bool:
    return setup.config.on_exhausted == "ask" and setup.config.max_tool_calls is not None


def _is_reviewed(setup: Setup, call: ToolCall | None) -> bool:
    return setup.is_reviewed(call)


class Stage(NamedTuple):
    """One stage of the way: what is said in it."""

    name: StageName
    why: str
    """It stands where it stands."""
    follows: Follows = {}
    concerns: Callable[[Setup, ToolCall | None], bool] = lambda setup, call: False
    """Whether a run with this setup may hear a word here on a call, or (None) an answer, that the gate lets through."""
    needs: str = ""
    """The part of the setup without which it has nothing to do; "" where it always may have."""
    keeps: tuple[str, ...] = ()
    """Fields of the state in which it keeps something from one reply to the next, by the names of what it needs."""


Stages = Sequence[Stage]

APPROVAL: Follows = {"held": {"yes": "approved", "no": "denied"}, "approved": BY_GATE, "allowed": BY_GATE}
CRITICS: Follows = {"allowed": BY_CRITIC, "asked": BY_CRITIC, "reviewed": BY_CRITIC}
CONFIRMATION: Follows = {"reviewed": AT_LAST, "confirmed": AT_LAST}

REVIEW = "critics", ("critiques",)

CALL_STAGES: Stages = (
    Stage("approval", "an approval binds to the very verdict, and what people deny costs nothing further on", APPROVAL),
    Stage("budget", "what is beyond the budget is not worth a review", concerns=_asks_for_more),
    Stage("critics", "they see just what would be run", CRITICS, _is_reviewed, *REVIEW),
    Stage("confirmation", "whatever held the run up since, policy of now decides", CONFIRMATION),
)

ANSWER_STAGES: Stages = (
    Stage("approval", "as for calls", APPROVAL),
    Stage("check", "what goes back to the model anyway is not worth a review"),
    Stage("critics", "they see an answer that nothing else is wrong with", CRITICS, _is_reviewed, *REVIEW),
)

NEEDED = tuple(dict.fromkeys(stage.needs for stage in (*CALL_STAGES, *ANSWER_STAGES) if stage.keeps))
KEPT = tuple(dict.fromkeys(field for stage in (*CALL_STAGES, *ANSWER_STAGES) for field in stage.keeps))
"""Parts of setups and fields of states that stages have for themselves."""


def is_in_question(setup: Setup | None, call: ToolCall | None = None) -> bool:
    """Return whether a stage may have a word on a call, or an answer: none of it counts before that."""
    stages = ANSWER_STAGES if call is None else CALL_STAGES
    return setup is not None and any(stage.concerns(setup, call) for stage in stages)


REJECTED: frozenset[Standing] = frozenset({"rejected"})

LET_THROUGH: frozenset[Standing] = frozenset({"allowed", "asked", "reviewed", "confirmed", "ended", "rejected"})
"""By the gate's last word."""

MAY_ACT: frozenset[Standing] = frozenset({"allowed", "reviewed", "confirmed"})

Place = TypeVar("Place", bound=Hashable)


class Standings(Generic[Place]):
    """Where the proposals of a reply stand, by their places, as one word after the other is taken in."""

    def __init__(self, stages: Stages, places: Iterable[Place] = ()) -> None:
        self._stages = stages
        self._standings: dict[Place, Standing] = dict.fromkeys(places, "proposed")
        self._late: set[Place] = set()

    def of(self, place: Place) -> Standing:
        """Return where it stands; what nothing was said of is proposed at most."""
        return self._standings.get(place, "proposed")

    def among(self, standings: frozenset[Standing]) -> tuple[Place, ...]:
        """Return the places that stand so, in the order in which they were proposed."""
        return tuple(place for place, standing in self._standings.items() if standing in standings)

    def begin(self, place: Place) -> None:
        """Put it to the gate anew: the run continued as new, say. What was said before counts no more."""
        self._standings[place] = "proposed"
        self._late.discard(place)

    def hear(self, place: Place, word: Word) -> bool:
        """Take a word in; False where it may not follow what was said before: then nothing changes."""
        then = follow(self._stages, self.of(place), word)
        if then is None:
            return False
        self._standings[place] = then
        if word in BY_GATE:
            self._late.discard(place)
        return True

    def hold_up(self) -> None:
        """Take in that people hold the run up: what was let through until now has to be confirmed, if it is a call."""
        if any(stage.name == "confirmation" for stage in self._stages):
            self._late.update(self.among(LET_THROUGH - REJECTED))

    def is_late(self, place: Place) -> bool:
        """Whether the run stood still since the gate's last word on it."""
        return place in self._late

    def lacks(self, place: Place) -> str:
        """Return what has to be there yet before the effect, or ""."""
        standing = self.of(place)
        if standing not in MAY_ACT:
            return _LACKS[standing]
        return "the gate's confirmation, behind what held the run up" if self.is_late(place) else ""

    def show_begun(self, place: Place) -> None:
        """Take in that it is carried out: the history shows it, whatever was said."""
        self._standings[place] = "allowed"
        self._late.discard(place)


def follow(stages: Stages, standing: Standing, word: Word) -> Standing | None:
    """Return where something stands after a word, or None where that may not be said then; the gate begins."""
    if standing == "proposed":
        return BY_GATE.get(word)
    for stage in stages:
        said = stage.follows.get(standing)
        if said is not None and word in said:
            return said[word]
    return None


_LACKS: Mapping[Standing, str] = {
    "proposed": "a verdict of the gate",
    "held": "a person's answer",
    "approved": "the gate's verdict on what a person approved",
    "asked": "the word of the person whom a critic asks",
    "ended": "a critic's yes: it ended the run",
    "denied": "a yes: it was denied",
    "rejected": "a yes: a critic turned it down",
}
