"""Held calls and decisions in any order: each call has at most one answer, the first valid one."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orga.workflows.decisions.control import questions
from orga.workflows.decisions.control.questions import shown_question
from orga.workflows.decisions.tool_calls import call_questions
from orga.workflows.types.questions import Item
from orga.workflows.types.tool_calls.gate import ApprovalTerms, Verdict
from tests.support.values.core import a_call, a_state, at
from tests.support.values.strategies import LAW

PEOPLE = ("ada", "bob", "eve")
numbers = st.integers(0, 3)


@dataclass
class Expected:
    """The expected fate of a call, computed without the code under test."""

    expires_s: int
    approvers: tuple[str, ...]
    answer: tuple[bool, str] | None = None
    shown: list[tuple[bool, str]] = field(default_factory=list[tuple[bool, str]])


terms = st.tuples(st.integers(1, 30), st.sampled_from([(), ("ada",), ("ada", "bob")]))


class HeldCalls(RuleBasedStateMachine):
    """Some held calls, a clock, and people who decide."""

    @initialize(given=st.lists(terms, min_size=1, max_size=4))
    def asked(self, given: list[tuple[int, tuple[str, ...]]]) -> None:
        self.now = 0
        self.expected = [Expected(expires_s, approvers) for expires_s, approvers in given]
        state = a_state()
        self.items = [self._item(state, number, each) for number, each in enumerate(self.expected)]
        self.state = questions.with_question(
            state, call_questions.approval_question(self.items, "approval-1", at(0)), at(0)
        )

    def _item(self, state: Any, number: int, each: Expected) -> Item:
        verdict = Verdict(
            decision="approval",
            version="v1",
            approval=ApprovalTerms(approvers=each.approvers, expires_s=each.expires_s),
        )
        return call_questions.approval_item(state, f"1.{number}", a_call("pay", amount=7), verdict, at(0))

    def _now(self) -> tuple[Item, ...]:
        return self.state.questions[0].items

    @rule(number=numbers, by=st.sampled_from(PEOPLE), approved=st.booleans(), again=st.booleans())
    def click(self, number: int, by: str, approved: bool, again: bool) -> None:
        number %= len(self.items)
        each = self.expected[number]
        may = each.answer is None and self.now < each.expires_s and (not each.approvers or by in each.approvers)
        self._decide(number, by, approved, is_taken=may)
        if may:
            each.answer = (approved, by)
        if again:
            self._decide(number, by, approved, is_taken=False)

    def _decide(self, number: int, by: str, approved: bool, *, is_taken: bool) -> None:
        raw = {"approval_id": self.items[number].approval_id, "approver": by}
        if not is_taken:
            with pytest.raises(ValueError, match=r"already|expired|may not decide"):
                questions.parsed_decision(self.state, raw, at(self.now))
            return
        decision = questions.parsed_decision(self.state, raw, at(self.now))
        self.state = questions.with_item_decision(self.state, decision, approved, at(self.now))

    @rule(seconds=st.integers(1, 12))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        for each in self.expected:
            if each.answer is None and self.now >= each.expires_s:
                each.answer = (False, "")
        self.state = questions.with_expired_decisions(self.state, at(self.now), at(self.now))

    @rule(by=st.sampled_from(PEOPLE))
    def click_on_something_else(self, by: str) -> None:
        with pytest.raises(ValueError, match="no approval is pending"):
            questions.parsed_decision(self.state, {"approval_id": "f" * 24, "approver": by}, at(self.now))

    @invariant()
    def the_first_valid_answer_counts_and_is_noted_once(self) -> None:
        answers = [item.answer and (item.answer.approved, item.answer.approver) for item in self._now()]
        assert answers == [each.answer for each in self.expected]
        ids = [item.approval_id for item in self.items]
        assert len(set(ids)) == len(ids)
        reported = [note.data["id"] for note in self.state.notes if note.event == "ApprovalResolved"]
        assert sorted(reported) == sorted(
            one for one, each in zip(ids, self.expected, strict=True) if each.answer is not None
        )

    @invariant()
    def people_are_asked_only_about_undecided_calls(self) -> None:
        undecided = [item.approval_id for item in self._now() if item.answer is None]
        assert [call["id"] for call in shown_question(self.state.questions[0]).data["calls"]] == undecided
        assert [item.approval_id for item in questions.pending_items(self.state, at(self.now))] == undecided


TestHeldCalls = HeldCalls.TestCase
TestHeldCalls.settings = LAW
