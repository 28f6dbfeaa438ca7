"""Law of every store, over random scopes: nothing of another tenant, user or agent is ever recalled."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from orga.activities.adapters.knowledge.knowledge_tools import RecallKnowledge
from orga.activities.knowledge.identity import audience_digits, reader_audiences
from orga.activities.knowledge.ports import KnowledgeStore
from orga.activities.knowledge.recall import recall_for_request
from orga.activities.ports import ToolContext
from orga.workflows.types.knowledge import Behalf, Erasure, KnowledgeItem, KnowledgeKind, Reader, Recall, ScopeLevel
from orga.workflows.types.recall import KnowledgeOutput, RecallRequest
from tests.support.knowledge.items import a_text, query_for
from tests.support.knowledge.stores import clock, opens, store

__all__ = ["clock", "opens", "store"]

DOCUMENTS: st.SearchStrategy[KnowledgeKind] = st.just("document")
RECALLED: st.SearchStrategy[KnowledgeKind] = st.sampled_from(["document", "convention"])
NAMES = st.sampled_from(["", "a", "A", "b", "a b", '"', "a', 'b", "%", "user", "ä", "0", "a\ufffd", "\ufffd"])
SCOPES: tuple[ScopeLevel, ...] = ("user", "agent", "tenant", "global")
OWNERS = st.builds(Reader, tenant=NAMES, user=NAMES, agent=NAMES)
ASKED = NAMES | st.sampled_from(["a\0", "\ud800"])
"""Also names that can own nothing, because no database accepts them."""
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
    """Return whether the reader may see the item. This states the rule again, independently of the stores."""
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
def owned_items(
    draw: st.DrawFn,
    kinds: st.SearchStrategy[KnowledgeKind] = DOCUMENTS,
    owners: st.SearchStrategy[Reader] = OWNERS,
) -> list[KnowledgeItem]:
    items: list[KnowledgeItem] = []
    for number in range(draw(st.integers(1, 8))):
        scope = draw(st.sampled_from(SCOPES))
        owner = draw(owners)
        if (scope, owner.user) == ("user", "") or (scope, owner.agent) == ("agent", ""):
            owner = owner.model_copy(update={scope: "somebody"})
        items.append(
            a_text(
                f"secret number {number}",
                kind=draw(kinds),
                scope=scope,
                owner=owner,
                directory=draw(st.sampled_from(["", "src"])),
            )
        )
    return items


@settings(max_examples=60)
@given(items=owned_items(), looked_for=WISHES)
async def test_a_reader_recalls_exactly_what_it_may_see(
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


FEW = st.sampled_from(["a", "b"])
NEIGHBOURS = st.builds(Reader, tenant=FEW, user=FEW, agent=FEW)
"""Few enough names that a reader often asks for what another one owns."""


async def ids_by_call(store: KnowledgeStore, reader: Reader, **arguments: str) -> set[str]:
    """Return the ids that a call by the model finds."""
    behalf = Behalf(reader=reader, threshold=0.0)
    context = ToolContext(call_id="c", idempotency_key="k", workflow_id="w", behalf=behalf)
    output = await RecallKnowledge(store).call({"query": "secret number", "limit": 20, **arguments}, context)
    assert isinstance(output, KnowledgeOutput)
    return {each.id for each in output.knowledge.items}


@settings(max_examples=100)
@given(items=owned_items(RECALLED, NEIGHBOURS), reader=NEIGHBOURS)
async def test_a_run_sees_only_its_own_knowledge_through_the_tool_and_before_its_steps(
    store: KnowledgeStore, items: list[KnowledgeItem], reader: Reader
) -> None:
    """Conventions of a directory are not found by words, but the law applies to them, too."""
    stored = await store.store(items)
    try:
        visible = {new.id: item for new, item in zip(stored, items, strict=True) if is_visible(item, reader, SCOPES)}
        rules = {id_ for id_, item in visible.items() if item.kind == "convention"}
        of_root = {id_ for id_ in rules if not visible[id_].directory}

        request = RecallRequest(
            iteration=1, terms=("secret", "number"), paths=("src/x.py",), reader=reader, limit=20, threshold=0.0
        )
        assert {each.item.id for each in await recall_for_request(store, request)} == set(visible)
        assert await ids_by_call(store, reader) == set(visible)
        assert await ids_by_call(store, reader, scope="conventions", directory="src/x.py") == rules
        assert await ids_by_call(store, reader, scope="conventions", directory="") == of_root
    finally:
        await store.forget(Erasure(ids=tuple(each.id for each in stored)))


@given(items=owned_items(), looked_for=WISHES)
def test_visible_places_agree_with_the_rule(items: list[KnowledgeItem], looked_for: Recall) -> None:
    for item in items:
        is_found = audience_digits(item.scope, item.owner) in reader_audiences(looked_for.reader, looked_for.scopes)
        assert is_found == is_visible(item, looked_for.reader, looked_for.scopes)


async def test_a_contradiction_reveals_nothing_of_others(store: KnowledgeStore) -> None:
    """The contradicting fact is fetched by its id, and only if the reader may see it."""
    for tenant in ("a", "b"):
        fact = KnowledgeItem(
            kind="fact", text=f"x is {tenant}", subject="x", predicate="is", object=tenant, owner=Reader(tenant=tenant)
        )
        await store.store([fact])
    found = await store.recall(query_for("x is", reader=Reader(tenant="a"), threshold=0))
    assert [(each.item.object, each.item.contradicted_by) for each in found] == [("a", "")]
