"""How long each call of an iteration took, from its asking to its end; what a recovery did for it counts in."""

import re
from datetime import datetime

from orga.workflows.types.delegation import delegated_place
from orga.workflows.types.messages import Reply
from orga.workflows.types.names import OWN_ACTIVITIES
from orga.workflows.types.status import Happening

_CALL = re.compile(r"(?P<place>\d{1,9}\.\d{1,9})(?:\.[a-pr-z]\d+)*")
_ENDS = {"finished", "failed", "cancelled", "child_finished", "child_failed"}


class CallTimes:
    """Takes in one event after the other. Of a call inside a workflow task the history has no beginning."""

    def __init__(self) -> None:
        self._begun: dict[str, datetime] = {}
        self._ended: dict[str, datetime] = {}

    def hear(self, happening: Happening) -> None:
        """Take in the beginning or the end of a call, or of a part of one."""
        key = delegated_place(happening.key) if happening.kind.startswith("child_") else happening.key
        found = None if happening.name in OWN_ACTIVITIES else _CALL.fullmatch(key)
        if found is None:
            return
        if happening.kind in {"scheduled", "child_started"}:
            self._begun.setdefault(found["place"], happening.at)
        elif happening.kind in _ENDS:
            self._ended[found["place"]] = happening.at

    def took_s(self, iteration: int, reply: Reply | None) -> dict[str, float]:
        """Return the seconds of the calls of a reply whose beginning and end are known, by their ids."""
        places = {call.call_id: f"{iteration}.{index}" for index, call in enumerate(reply.calls if reply else ())}
        return {
            call_id: (self._ended[place] - self._begun[place]).total_seconds()
            for call_id, place in places.items()
            if place in self._ended and place in self._begun
        }
