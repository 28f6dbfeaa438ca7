"""What the journal knows of the iteration that is under way: its reply, and what became of each call."""

from typing import Any

from workflows.types.gate import Verdict
from workflows.types.messages import Reply


class JournalIteration:
    """Collects outcomes until every allowed call has one."""

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self._expected: tuple[str, ...] | None = None
        self._scheduled: set[str] = set()
        self._outcomes: dict[str, dict[str, Any]] = {}

    @property
    def is_judged(self) -> bool:
        """Whether the gate has decided on the reply; what it decides later is about recoveries."""
        return self._expected is not None

    @property
    def proposals(self) -> int:
        """How many things the reply proposes: its calls, else the answer."""
        return len(self.reply.calls) if self.reply and self.reply.calls else 1

    def judged(self, iteration: int, verdicts: tuple[Verdict, ...]) -> list[dict[str, Any]]:
        """Take in the verdicts on the reply and return the calls that may be carried out."""
        calls = self.reply.calls if self.reply else ()
        places = [index for index, v in enumerate(verdicts) if v.decision == "allow" and index < len(calls)]
        self._expected = tuple(f"{iteration}.{index}" for index in places)
        return [self.call(key) for key in self._expected]

    def scheduled(self, key: str) -> None:
        """Take in that a call was started, or a part of it: a step of a saga, say; a fallback is another call."""
        place, part = key.split(".")[:2], key.split(".")[2:]
        if not part or not part[0].startswith("f"):
            self._scheduled.add(".".join(place))

    def ended(self, key: str, outcome: str, error: str) -> None:
        """Take in what became of a call; attempts of a recovery have keys of their own and are not calls."""
        if key in (self._expected or ()):
            self._outcomes[key] = {**self.call(key), "outcome": outcome, **({"error": error} if error else {})}

    @property
    def is_complete(self) -> bool:
        """Whether every call has succeeded; one that failed may be recovered yet."""
        expected = self._expected or ()
        return all(self._outcomes.get(key, {}).get("outcome") == "ok" for key in expected)

    def collected(self) -> dict[str, Any]:
        """Return what became of every allowed call, and forget it."""
        expected = self._expected or ()
        outcomes = [self._outcomes.get(key) or {**self.call(key), "outcome": self._without(key)} for key in expected]
        self._expected = ()
        self._outcomes = {}
        return {"observation_count": len(self.reply.calls) if self.reply else 0, "outcomes": outcomes}

    def is_open(self) -> bool:
        """Whether the outcomes of this iteration were not told yet."""
        return bool(self._expected)

    def call(self, key: str) -> dict[str, Any]:
        """Return the call at a place, as the journal shows it."""
        calls, index = self.reply.calls if self.reply else (), _index(key)
        if not 0 <= index < len(calls):
            return {"call_id": key}
        return {"tool": calls[index].name, "call_id": calls[index].call_id}

    def _without(self, key: str) -> str:
        return "unfinished" if key in self._scheduled else "not_run"


def _index(key: str) -> int:
    _, _, index = key.partition(".")
    return int(index) if index.isdigit() else -1
