"""Nothing of another tenant, user or agent is ever recalled: a law of every store, over random scopes."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from orga.activities.knowledge.ports import KnowledgeStore
from orga.activities.knowledge.scopes import may_recall
from orga.workflows.types.knowledge import Erasure, KnowledgeItem, Reader, Recall, ScopeLevel
from tests.support.knowledge.items import a_text, wish
from tests.support.knowledge.stores import clock, opens, store

__all__ = ["clock", "opens", "store"]

NAMES = st.sampled_from(["", "a", "A", "b", "a b", '"', "a', 'b", "%", "user", "ä", "0", "a\ufffd", "\ufffd"])
SCOPES: tuple[ScopeLevel, ...] = ("user", "agent", "tenant", "global")
OWNERS = st.builds(Reader, tenant=NAMES, user=NAMES, agent=NAMES)
ASKED = NAMES | st.sampled_from(["a\0", "\ud800"])
"""And names that own nothing, since no database takes them."""
READERS = st.builds(Reader, tenant=ASKED, user=ASKED, agent=ASKED)
WISHES = st.builds(
    Recall,
    text=st.sampled_from(["", "secret", "secret number", "secrets nubmer 3"]),
    reader=READERS,
    limit=st.just(100),
    threshold=st.just(0.0),
    scopes=st.lists(st.sampled_from(SCOPES), unique=True, max_size=4).map(tuple),
    directory=st.sampled_from([None, None, "src"]),
)


def is_visible(item: KnowledgeItem, reader: Reader, scopes: Sequence[ScopeLevel]) -> bool:
    """The rule in its own words, beside that of the stores."""
    if item.scope not in scopes:
        return False
    if item.scope == "global":
        return True
    if item.owner.tenant != reader.tenant:
        return False
    if item.scope == "tenant":
        return True
    mine, theirs = (reader.user, item.owner.user) if item.scope == "user" else (reader.agent, item.owner.agent)
    return mine == theirs != ""


@st.composite
def owned_items(draw: st.DrawFn) -> list[KnowledgeItem]:
    items: list[KnowledgeItem] = []
    for number in range(draw(st.integers(1, 8))):
        scope = draw(st.sampled_from(SCOPES))
        owner = draw(OWNERS)
        if (scope, owner.user) == ("user", "") or (scope, owner.agent) == ("agent", ""):
            owner = owner.model_copy(update={scope: "somebody"})
        items.append(
            a_text(f"secret number {number}", scope=scope, owner=owner, directory=draw(st.sampled_from(["", "src"])))
        )
    return items


@settings(max_examples=60)
@given(items=owned_items(), looked_for=WISHES)
async def test_exactly_what_a_reader_may_see_is_recalled(
    store: KnowledgeStore, items: list[KnowledgeItem], looked_for: Recall
) -> None:
    stored = await store.store(items)
    try:
        found = {each.item.text for each in await store.recall(looked_for)}
        visible = {
            item.text
            for item in items
            if is_visible(item, looked_for.reader, looked_for.scopes) and looked_for.directory in {None, item.directory}
        }
        assert found == visible
    finally:
        await store.forget(Erasure(ids=tuple(each.id for each in stored)))


@given(items=owned_items(), looked_for=WISHES)
def test_the_rule_of_places_is_the_rule(items: list[KnowledgeItem], looked_for: Recall) -> None:
    for item in items:
        assert may_recall(item, looked_for.reader, looked_for.scopes) == is_visible(
            item, looked_for.reader, looked_for.scopes
        )


async def test_a_contradiction_tells_nothing_of_others(store: KnowledgeStore) -> None:
    """The fact that contradicts another is fetched by its id: also that only where it may be seen."""
    for tenant in ("a", "b"):
        fact = KnowledgeItem(
            kind="fact", text=f"x is {tenant}", subject="x", predicate="is", object=tenant, owner=Reader(tenant=tenant)
        )
        await store.store([fact])
    found = await store.recall(wish("x is", reader=Reader(tenant="a"), threshold=0))
    assert [(each.item.object, each.item.contradicted_by) for each in found] == [("a", "")]
