"""How a journal begins: what the run was started with, and whose past it shares."""

from typing import Any

from workflows.decisions.journal_data import Found, as_object
from workflows.types.context import Setup
from workflows.types.digest import record_digest, reference, text_digest
from workflows.types.fork import is_fork
from workflows.types.state import AgentState, ForkedFrom


class JournalStart:
    """Tells it once: of a fork when it has read its past, where its task may stand."""

    def __init__(self) -> None:
        self.agent = ""
        """That the run is of, as far as that is known."""
        self._awaiting: dict[str, Any] | None = None

    @property
    def is_due(self) -> bool:
        """Whether a fork has not read its past yet: what happens before that is told behind its start."""
        return self._awaiting is not None

    def begun(self, given: dict[str, Any]) -> Found:
        """Return what a run was started with; nothing yet where it is a fork."""
        if is_fork(given):
            self._awaiting = given
            return []
        return self._told(given)

    def forked(self, past: AgentState) -> Found:
        """Return what a fork goes on from, unless its start was told already."""
        if self._awaiting is None:
            return []
        source = past.forked_from.model_dump() if past.forked_from else {}
        return self._told(past.input.model_dump(mode="json", exclude_unset=True), forked_from=source)

    def unread(self) -> Found:
        """Return what a fork was started with that has not read its past."""
        given = self._awaiting or {}
        fork = as_object(given.get("fork"))
        return self._told(given, forked_from={key: fork.get(key) for key in ForkedFrom.model_fields})

    def _told(self, given: dict[str, Any], **forked: Any) -> Found:
        self.agent, self._awaiting = str(given.get("agent") or "default"), None
        rest = {key: value for key, value in given.items() if key not in {"task", "fork"}}
        return [("Started", {"task": str(given.get("task") or ""), "input": rest, **forked})]


def prepared(setup: Setup) -> dict[str, Any]:
    """Return what acts in the run: in full, but for instructions and definitions of tools, which are told by digest."""
    optional = {"policy_version": setup.policy_version, "build": setup.build}
    return {
        "model": setup.model,
        "instructions": reference(text_digest(setup.instructions)),
        "tools": {spec.name: reference(record_digest(spec)) for spec in setup.tools},
        "config": setup.config.model_dump(mode="json", exclude_none=True),
        "policy": setup.policy,
        **{key: value for key, value in optional.items() if value},
    }
