"""What the journal knows of the verdicts on a reply: which of its calls may be carried out by now."""

from collections.abc import Collection, Sequence
from typing import Literal

from workflows.types.gate import Decision

DENIED: Decision = "deny"


class JournalVerdicts:
    """Follows the calls of a reply from the gate's first word on them to the last, by their indexes.

    Once people have answered, the gate judges what waited beside the held calls, all of it at once, then each approved
    call. Where the run stood still after that, it judges each call once more. `in_question` are the calls that others
    may have a word on before they are carried out: critics, or who is asked for more budget.
    """

    def __init__(self, decisions: Sequence[Decision], *, in_question: Collection[int] = (), is_paused: bool) -> None:
        self._decisions: list[Decision | Literal["approved"]] = list(decisions)
        self._in_question = frozenset(in_question)
        self._held: dict[str, int] = {}
        self._due: list[tuple[int, ...]] = []
        self._rejected: set[int] = set()
        self._is_paused = self._stood_still = is_paused

    @property
    def allowed(self) -> tuple[int, ...]:
        """The calls that the gate lets through by now."""
        return tuple(index for index, decision in enumerate(self._decisions) if decision == "allow")

    @property
    def passed(self) -> tuple[int, ...]:
        """Those of them that no critic has turned down."""
        return tuple(index for index in self.allowed if index not in self._rejected)

    @property
    def is_settled(self) -> bool:
        """Whether nobody has anything more to say before the calls are carried out."""
        if "approval" in self._decisions or self._due:
            return False
        return not self.passed or not (self._stood_still or self._in_question.intersection(self.passed))

    def asked(self, approval_id: str, index: int) -> None:
        """Take in that a person is asked about a call."""
        if self._decisions[index] == "approval":
            self._held[approval_id] = index

    def answered(self, approval_id: str, *, is_yes: bool) -> None:
        """Take in a person's answer; the last one lets the gate judge once more."""
        if approval_id not in self._held:
            return
        self._decisions[self._held.pop(approval_id)] = "approved" if is_yes else "deny"
        if not self._held:
            approved = [(index,) for index, decision in enumerate(self._decisions) if decision == "approved"]
            self._await([self.allowed, *approved] if self.allowed else approved)

    def judged_again(self, decisions: Sequence[Decision]) -> tuple[int, ...]:
        """Take in a later word of the gate, and return the calls that it is about: none where it is on a recovery."""
        if self._stood_still and not self._due:
            self._due = [(index,) for index in self.passed]
        while self._due:
            about, *rest = self._due
            self._await(rest)
            if len(about) == len(decisions):
                for index, decision in zip(about, decisions, strict=True):
                    self._decisions[index] = decision
                return about
        return ()

    def not_judged(self) -> None:
        """Take in that the gate failed: what it was asked about is denied."""
        about = self._due[0] if self._due else self.passed[:1]
        self.judged_again([DENIED for _ in about])

    def rejected(self, index: int) -> None:
        """Take in that a critic turned a call down."""
        self._rejected.add(index)

    def paused(self, is_paused: bool) -> None:
        """Take in that the run is paused, or goes on."""
        self._is_paused = is_paused
        self._stood_still = self._stood_still or is_paused

    def stood_still(self) -> None:
        """Take in that the run waits for a person."""
        self._stood_still = True

    def started(self, index: int) -> None:
        """Take in that a call is carried out: so it was allowed, as was each approved one that nothing is known of."""
        self._decisions = ["allow" if decision == "approved" else decision for decision in self._decisions]
        self._decisions[index] = "allow"
        self._rejected.discard(index)

    def _await(self, due: list[tuple[int, ...]]) -> None:
        self._due = due
        if not due:
            self._stood_still = self._is_paused
