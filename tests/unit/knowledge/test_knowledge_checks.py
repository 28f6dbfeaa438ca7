"""Validation of items, and items that count as the same."""

from dataclasses import dataclass
from datetime import datetime

import pytest

from orga.activities.knowledge.arrival import MAX_NAME_CHARS, MAX_TEXT_CHARS, checked_item
from orga.activities.knowledge.identity import claim_digest, item_id, require_named
from orga.activities.knowledge.ports import KnowledgeError
from orga.workflows.types.knowledge import Erasure, KnowledgeItem, Provenance, Reader
from tests.support.knowledge.items import a_fact, a_text, owned


@dataclass(frozen=True)
class Flawed:
    """An item that no store accepts, and its error message."""

    item: KnowledgeItem
    message: str


FLAWS = {
    "no text": Flawed(a_text(" \n"), "a document cannot be stored: its text is empty"),
    "long": Flawed(
        a_text("x" * (MAX_TEXT_CHARS + 1)), "100,001 characters of at most 100,000; import it as a document"
    ),
    "a long key": Flawed(a_text("x", key="k" * (MAX_NAME_CHARS + 1)), "its key has 1,001 characters"),
    "a long user": Flawed(a_text("x", **owned("user", user="u" * 1001)), "its user has 1,001 characters"),
    "a long source": Flawed(a_text("x", provenance=Provenance(source="s" * 1001)), "its source has 1,001"),
    "a user scope without a user": Flawed(
        a_text("x", **owned("user", "acme")), "no user is named; name one in the run's trusted_con"
    ),
    "an agent scope without an agent": Flawed(a_text("x", **owned("agent", user="anna")), "no agent is named"),
    "a user with NUL": Flawed(
        a_text("x", **owned("user", user="a\0b")), "its user has a character that no database takes"
    ),
    "a tenant with half a character": Flawed(a_text("x", **owned("tenant", "\ud800")), "its tenant has a character"),
    "an agent with NUL": Flawed(a_text("x", **owned("agent", agent="\0")), "its agent has a character"),
    "half a fact": Flawed(a_fact("x", "is", " "), "a fact has a subject, a predicate and an object"),
    "a time without a zone": Flawed(a_text("x", expires_at=datetime(2027, 1, 1)), "has no time zone"),
    "an absolute directory": Flawed(a_text("x", directory="/src"), "directory '/src' is no path relative"),
    "a directory above": Flawed(a_text("x", directory="src/../.."), "is no path relative"),
    "a directory with backslashes": Flawed(a_text("x", directory="src\\api"), "is no path relative"),
    "a directory with a trailing slash": Flawed(a_text("x", directory="src/"), "is no path relative"),
}


@pytest.mark.parametrize("flawed", FLAWS.values(), ids=FLAWS)
def test_a_flawed_item_is_refused_with_its_flaw(flawed: Flawed) -> None:
    with pytest.raises(KnowledgeError) as caught:
        checked_item(flawed.item)
    assert flawed.message in str(caught.value)
    assert (caught.value.kind, caught.value.retryable) == ("InvalidItem", False)


def test_an_item_at_the_limits_is_accepted() -> None:
    item = a_text("x" * MAX_TEXT_CHARS, key="k" * MAX_NAME_CHARS, directory="src/api")
    assert checked_item(item) == item


def test_each_scope_keeps_only_its_own_part_of_the_owner() -> None:
    owner = Reader(tenant="acme", user="anna", agent="reader")
    scopes = [
        checked_item(a_text("x", scope=scope, owner=owner)).owner for scope in ("global", "tenant", "user", "agent")
    ]
    assert scopes == [
        Reader(),
        Reader(tenant="acme"),
        Reader(tenant="acme", user="anna"),
        Reader(tenant="acme", agent="reader"),
    ]


def test_names_that_the_scope_does_not_use_are_not_checked() -> None:
    assert checked_item(a_text("x", **owned("tenant", "acme", "a\0b"))).owner == Reader(tenant="acme")


def test_a_key_and_a_content_never_share_an_id() -> None:
    ids = [item_id(item) for item in (a_text("x"), a_text("y"), a_text("x", key="k"), a_text("x", key="x"))]
    assert len(set(ids)) == 4
    assert item_id(a_text("x", key="k")) == item_id(a_text("other", key="k", kind="memory"))


def test_a_fact_is_the_same_regardless_of_case_and_spaces() -> None:
    one, other = a_fact("The  Database", "IS", "MySQL"), a_fact("the database", "is", "mysql\n")
    assert item_id(one) == item_id(other)
    assert claim_digest(one) == claim_digest(a_fact("the database", "is", "PostgreSQL"))
    assert claim_digest(a_text("x")) == ""


def test_the_parts_of_a_fact_are_kept_apart() -> None:
    assert item_id(a_fact("a b", "c", "d")) != item_id(a_fact("a", "b c", "d"))


def test_erasure_needs_at_least_one_criterion() -> None:
    with pytest.raises(KnowledgeError, match="name what to forget"):
        require_named(Erasure())
    require_named(Erasure(tenant=""))
