"""What the journal knows of the verdicts on a reply: which of its calls may be carried out by now."""

from collections.abc import Collection

from orga.workflows.decisions.stages import CALL_STAGES, LET_THROUGH, REJECTED, Standing, Standings, Word

PASSED = LET_THROUGH - REJECTED
APPROVED: frozenset[Standing] = frozenset({"approved"})
UNDECIDED: frozenset[Standing] = frozenset({"proposed", "held", "approved"})
BESIDE: frozenset[Standing] = frozenset({"proposed", "allowed"})
"""What the gate is asked about at once: all calls at first, then those that waited beside held ones."""


class JournalVerdicts:
    """Follows the calls of a reply from the gate's first word on them to the last, by their indexes.

    `in_question` are the calls that others may have a word on before they are carried out: critics, or who is asked for
    more budget.
    """

    def __init__(self, size: int, *, in_question: Collection[int] = (), is_paused: bool) -> None:
        self._standings = Standings[int](CALL_STAGES, range(size))
        self._in_question = frozenset(in_question)
        self._is_paused = is_paused

    @property
    def allowed(self) -> tuple[int, ...]:
        """The calls that the gate lets through by now."""
        return self._standings.among(LET_THROUGH)

    @property
    def passed(self) -> tuple[int, ...]:
        """Those of them that no critic has turned down."""
        return self._standings.among(PASSED)

    @property
    def is_settled(self) -> bool:
        """Whether nobody has anything more to say before the calls are carried out."""
        if self._standings.among(UNDECIDED):
            return False
        return not any(index in self._in_question or self._standings.is_late(index) for index in self.passed)

    def hear(self, index: int, word: Word) -> None:
        """Take in what gate, person or critic says of a call; what cannot follow what was said before is nothing."""
        self._standings.hear(index, word)
        if self._is_paused:
            self._standings.hold_up()

    def not_judged(self, index: int | None) -> list[int]:
        """Take in that the gate failed and denied what it was asked about; None stands for several calls at once."""
        about = [index] if index is not None else list(self._standings.among(BESIDE))
        for each in about:
            self.hear(each, "deny")
        return about

    def paused(self, is_paused: bool) -> None:
        """Take in that the run is paused, or goes on."""
        self._is_paused = is_paused
        if is_paused:
            self.stood_still()

    def stood_still(self) -> None:
        """Take in that the run waits for a person."""
        self._standings.hold_up()

    def started(self, index: int) -> None:
        """Take in that a call is carried out: so it was allowed, as was each approved one that nothing is known of."""
        for each in (index, *self._standings.among(APPROVED)):
            self._standings.show_begun(each)
