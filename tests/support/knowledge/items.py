"""Items, readers and queries with defaults, so that a test states only what it is about."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from orga.workflows.types.knowledge import KnowledgeItem, Provenance, Reader, Recall, Recalled, ScopeLevel

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)


class Clock:
    """A clock that moves only on request."""

    def __init__(self) -> None:
        self.time = T0

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def a_fact(subject: str, predicate: str, object_: str, **other: Any) -> KnowledgeItem:
    text = f"{subject} {predicate} {object_}"
    return KnowledgeItem(kind="fact", text=text, subject=subject, predicate=predicate, object=object_, **other)


def a_text(text: str, **other: Any) -> KnowledgeItem:
    fields: dict[str, Any] = {"kind": "document", "text": text, **other}
    return KnowledgeItem(**fields)


def tainted(*tools: str) -> Provenance:
    return Provenance(taint=tools)


def owned(scope: ScopeLevel, tenant: str = "", user: str = "", agent: str = "") -> dict[str, Any]:
    return {"scope": scope, "owner": Reader(tenant=tenant, user=user, agent=agent)}


def query_for(text: str = "", **other: Any) -> Recall:
    return Recall(text=text, **other)


def texts(found: Sequence[Recalled]) -> list[str]:
    return [each.item.text for each in found]
