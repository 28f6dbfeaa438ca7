"""What the journal tells of knowledge: what was recalled, what was stored, and that neither could be done."""

from typing import Any

from pydantic import ValidationError

from orga.workflows.types.gate import LEARNINGS
from orga.workflows.types.recall import (
    STORE_KNOWLEDGE,
    RecalledContext,
    RecalledRef,
    StoredRef,
    recall_id,
    told_in,
)
from orga.workflows.types.status import Happening

MAX_DIGITS = 9


def recalled(happening: Happening) -> dict[str, Any]:
    """Return what was recalled ahead of a reasoning step, and what became of the block."""
    if happening.kind != "finished":
        return {"terms": [], "items": [], "error": happening.text, "block": "none"}
    found = RecalledContext.model_validate(happening.value)
    block = "kept" if found.same else "injected" if found.text else "none"
    told: dict[str, Any] = {"terms": list(found.terms), "items": _items(found.items), "block": block}
    return {**told, **({"taint": list(found.taint)} if found.taint else {}), **_error(found.error)}


def recalled_for(activity_id: str) -> int:
    """Return the iteration of the reasoning step that it was recalled for; 0 where the id is another's."""
    iteration = activity_id.removesuffix(recall_id("")) if activity_id.endswith(recall_id("")) else ""
    return int(iteration) if iteration.isdecimal() and len(iteration) <= MAX_DIGITS else 0


def known(happening: Happening) -> list[tuple[str, dict[str, Any]]]:
    """Return what a call of a knowledge tool brings: what it has recalled or stored; of learnings a failure, too."""
    if happening.kind != "finished":
        is_learning = happening.key == LEARNINGS
        return [("KnowledgeStored", {"place": LEARNINGS, "error": happening.text})] if is_learning else []
    try:
        told = told_in(happening.name, happening.value)
    except ValidationError:
        return []
    if happening.name != STORE_KNOWLEDGE:
        data = {"place": happening.key, "terms": list(told.terms), "items": _items(told.items)}
        return [("KnowledgeRecalled", {**data, **({"taint": list(told.taint)} if told.taint else {})})]
    stored = () if told.stored is None else (told.stored, *told.evidence)
    return [("KnowledgeStored", {"place": happening.key, **_stored(each)}) for each in stored]


def _items(items: tuple[RecalledRef, ...]) -> list[dict[str, Any]]:
    return [{"id": each.id, "score": each.score, **({"tainted": True} if each.tainted else {})} for each in items]


def _stored(stored: StoredRef) -> dict[str, Any]:
    told = {"id": stored.id, "kind": stored.kind, "change": stored.change}
    return {**told, **({"contradicts": list(stored.contradicts)} if stored.contradicts else {})}


def _error(error: str) -> dict[str, str]:
    return {"error": error} if error else {}
