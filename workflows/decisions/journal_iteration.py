"""What the journal knows of the iteration that is under way: its reply, and what became of each call."""

import re
from typing import Any, cast

from workflows.decisions.critic_scope import reviews
from workflows.decisions.journal_verdicts import JournalVerdicts
from workflows.decisions.replies import classify_reply
from workflows.types.context import Setup
from workflows.types.gate import Decision, Verdict
from workflows.types.messages import Reply
from workflows.types.notes import Note

TO_THE_GATE = frozenset({"calls", "answer", "cut_answer"})
"""Replies that the gate is asked about; the others are sent back unjudged."""

_PLACE = re.compile(r"(?P<iteration>\d{1,9})\.(?P<index>\d{1,9})(?:\.[a-pr-z]\d+)*")
"""Of a call of a reply, or a part of one; behind a `q` a call is sent again later."""


class JournalIteration:
    """Collects outcomes until every allowed call has one."""

    def __init__(self, iteration: int = 0, setup: Setup | None = None, *, is_paused: bool = False) -> None:
        self.reply: Reply | None = None
        self._iteration = iteration
        self._setup = setup
        self._is_paused = is_paused
        self._is_for_gate = False
        self._verdicts: JournalVerdicts | None = None
        self._expected: set[int] | None = None
        self._is_collected = False
        self._scheduled: set[int] = set()
        self._outcomes: dict[int, dict[str, Any]] = {}

    @property
    def awaits_gate(self) -> bool:
        """Whether the gate's next word is on the reply; what it says later is on recoveries, or on calls once more."""
        return self._is_for_gate and self._verdicts is None

    @property
    def proposals(self) -> int:
        """How many things the reply proposes: its calls, else the answer."""
        return len(self.reply.calls) if self.reply and self.reply.calls else 1

    @property
    def undispatched(self) -> JournalVerdicts | None:
        """The verdicts on calls of which it was not told yet that they are carried out."""
        return self._verdicts if self._expected is None else None

    def replied(self, reply: Reply) -> None:
        """Take in the model's reply."""
        self.reply = reply
        wants_data = self._setup is not None and self._setup.output_schema is not None
        self._is_for_gate = classify_reply(reply, wants_data=wants_data).kind in TO_THE_GATE

    def judged(self, verdicts: tuple[Verdict, ...]) -> None:
        """Take in the verdicts on the reply; where they are not as many as it has calls, all of these are denied."""
        fits = self.reply is not None and len(verdicts) == len(self.reply.calls)
        decisions: list[Decision] = [verdict.decision for verdict in verdicts] if fits else []
        self._verdicts = JournalVerdicts(decisions, in_question=self._in_question(), is_paused=self._is_paused)

    def judged_again(self, verdicts: tuple[Verdict, ...]) -> list[str]:
        """Take in verdicts that are not the first ones on the reply, and return which of its calls they are on."""
        undispatched, calls = self.undispatched, self.reply.calls if self.reply else ()
        about = undispatched.judged_again([verdict.decision for verdict in verdicts]) if undispatched else ()
        return [calls[index].call_id for index in about]

    def not_judged(self) -> None:
        """Take in that the gate failed: what it was asked about is denied."""
        if self.awaits_gate:
            self.judged(())
            self._expected, self._is_collected = set(), True
        elif self.undispatched:
            self.undispatched.not_judged()

    def noted(self, note: Note) -> None:
        """Take in what is asked and said about the calls, or about the budget for them."""
        told, verdicts = note.data, self._verdicts
        if note.event == "ApprovalRequested" and (told.get("kind") == "budget" or told.get("critic")):
            self._stood_still()
        elif verdicts is None or told.get("kind") not in {"call", "critic"}:
            return
        elif note.event == "ApprovalResolved":
            verdicts.answered(str(told.get("id")), is_yes=bool(told.get("approved")))
        elif (index := self._index_of(told.get("call_id"))) is None:
            return
        elif note.event == "ApprovalRequested":
            verdicts.asked(str(told.get("id")), index)
        elif note.event == "CritiqueEvaluated" and told.get("then") == "revise":
            verdicts.rejected(index)

    def with_arguments(self, told: dict[str, Any]) -> dict[str, Any]:
        """Return what a note says, with the arguments of the calls that a recovery made as those of the reply's."""
        index, made = self._index_of(told.get("call_id")), told.get("calls")
        if self.reply is None or index is None or not isinstance(made, list):
            return told
        known = {"arguments": self.reply.calls[index].arguments}
        return {**told, "calls": [{**known, **each} for each in cast("list[dict[str, Any]]", made)]}

    def paused(self, is_paused: bool) -> None:
        """Take in that the run is paused, or goes on."""
        self._is_paused = is_paused
        if self._verdicts:
            self._verdicts.paused(is_paused)

    def begins(self, key: str) -> bool:
        """Return whether what stands at this place shows that the reply's calls are carried out, and this is untold.

        It may be a part of a call: a step of a saga, or a fallback, which is another call. One that is sent again is
        none of this reply.
        """
        index = self._index(key)
        if index is None or self._verdicts is None:
            return False
        if ".f" not in key:
            self._scheduled.add(index)
        if self._expected is None:
            self._verdicts.started(index)
            return True
        if not self._is_collected:
            self._expected.add(index)
        return False

    def dispatched(self, *, is_begun: bool) -> dict[str, Any]:
        """Return the calls that are carried out; none where the history shows nothing of it."""
        verdicts = self._verdicts
        self._expected = set(verdicts.allowed if verdicts else ())
        tools = [self._call(index) for index in verdicts.passed] if verdicts and is_begun else []
        return {"tool_count": len(tools), "tools": tools}

    def ended(self, key: str, outcome: str, error: str) -> None:
        """Take in what became of a call; attempts of a recovery have keys of their own and are not calls."""
        index = self._index(key)
        if index is not None and _is_whole(key):
            self._outcomes[index] = {**self._call(index), "outcome": outcome, **({"error": error} if error else {})}

    @property
    def is_complete(self) -> bool:
        """Whether every call has succeeded; one that failed may be recovered yet."""
        return self.is_open and all(self._outcomes.get(i, {}).get("outcome") == "ok" for i in self._expected or ())

    @property
    def is_open(self) -> bool:
        """Whether it is told that calls are carried out, and not what became of them."""
        return self._expected is not None and not self._is_collected

    def collected(self) -> dict[str, Any]:
        """Return what became of every allowed call."""
        self._is_collected = True
        outcomes = [
            self._outcomes.get(index) or {**self._call(index), "outcome": self._without(index)}
            for index in sorted(self._expected or ())
        ]
        return {"observation_count": len(self.reply.calls) if self.reply else 0, "outcomes": outcomes}

    def call(self, key: str) -> dict[str, Any]:
        """Return the call at a place, as the journal shows it."""
        index = self._index(key)
        return self._call(index) if index is not None and _is_whole(key) else {"call_id": key}

    def _stood_still(self) -> None:
        """Take in that the run waits for a person; a reply that no gate has seen by then is left to none."""
        self._is_for_gate = self._is_for_gate and self._verdicts is not None
        if self._verdicts:
            self._verdicts.stood_still()

    def _in_question(self) -> list[int]:
        setup, calls = self._setup, self.reply.calls if self.reply else ()
        if setup is None:
            return []
        if setup.config.on_exhausted == "ask" and setup.config.max_tool_calls is not None:
            return list(range(len(calls)))
        return [index for index, call in enumerate(calls) if any(reviews(critic, call) for critic in setup.critics)]

    def _index_of(self, call_id: object) -> int | None:
        calls = self.reply.calls if self.reply else ()
        return next((index for index, call in enumerate(calls) if call.call_id == call_id), None)

    def _call(self, index: int) -> dict[str, Any]:
        call = self.reply.calls[index] if self.reply else None
        return {"tool": call.name, "call_id": call.call_id} if call else {}

    def _without(self, index: int) -> str:
        return "unfinished" if index in self._scheduled else "not_run"

    def _index(self, key: str) -> int | None:
        """Return which of the reply's calls has this place, or a part of it."""
        found = _PLACE.fullmatch(key)
        if found is None or int(found["iteration"]) != self._iteration:
            return None
        index, calls = int(found["index"]), self.reply.calls if self.reply else ()
        return index if index < len(calls) else None


def _is_whole(key: str) -> bool:
    return key.count(".") == 1
