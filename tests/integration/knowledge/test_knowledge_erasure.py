"""Law of every store, over random items and erasures: exactly what the preview shows is erased."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orga.activities.knowledge.identity import is_erased_by
from orga.activities.knowledge.ports import KnowledgeStore
from orga.workflows.types.knowledge import Erasure, KnowledgeItem, Provenance, Reader, ScopeLevel
from tests.support.knowledge.items import T0, a_fact
from tests.support.knowledge.stores import clock, opens, store

__all__ = ["clock", "opens", "store"]

NAMES = st.sampled_from(["", "a", "A", "%", "' OR 1"])
SUBJECTS = NAMES | st.sampled_from([" a", "a  B", "A b", "ß", "SS"])
TIMES = st.sampled_from([T0 + timedelta(microseconds=number) for number in range(-1, 2)])
SCOPES: tuple[ScopeLevel, ...] = ("user", "agent", "tenant", "global")


@st.composite
def facts(draw: st.DrawFn) -> KnowledgeItem:
    owner = Reader(tenant=draw(NAMES), user=draw(NAMES) or "somebody", agent="something")
    provenance = Provenance(source=draw(NAMES), workflow_id=draw(NAMES))
    return a_fact(
        *(draw(SUBJECTS) or "it", "is", str(draw(st.integers(0, 9)))),
        scope=draw(st.sampled_from(SCOPES)),
        owner=owner,
        provenance=provenance,
        expires_at=draw(st.none() | TIMES),
    )


NAMED: dict[str, st.SearchStrategy[Any]] = {
    "ids": st.lists(st.integers(0, 30), min_size=1, max_size=9, unique=True),
    "subject": SUBJECTS,
    "workflow_id": NAMES,
    "user": NAMES,
    "tenant": NAMES,
    "source": NAMES,
    "expired_by": TIMES,
}


@st.composite
def erasures(draw: st.DrawFn, ids: Sequence[str]) -> Erasure:
    """Return an erasure by one criterion, or by two that must both match."""
    names = draw(st.lists(st.sampled_from(list(NAMED)), min_size=1, max_size=2, unique=True))
    named = {name: draw(NAMED[name]) for name in names}
    if "ids" in named:
        named["ids"] = tuple(ids[number] if number < len(ids) else f"k{number}" for number in named["ids"])
    what = Erasure(**named)
    return Erasure(tenant="") if what == Erasure() else what


@settings(max_examples=60)
@given(arriving=st.lists(facts(), min_size=8, max_size=25), data=st.data())
async def test_exactly_what_the_preview_shows_is_erased(
    store: KnowledgeStore, arriving: list[KnowledgeItem], data: st.DataObject
) -> None:
    ids = tuple(dict.fromkeys(each.id for each in await store.store(arriving)))
    try:
        what = data.draw(erasures(ids))
        before = {item.id: item async for item in store.items()}
        shown = {id_ for id_, item in before.items() if is_erased_by(item, what)}
        gone = await store.forget(what)
        assert {item.id async for item in store.items()} == before.keys() - shown
        assert gone == Counter(before[id_].kind for id_ in shown)
    finally:
        await store.forget(Erasure(ids=ids))
