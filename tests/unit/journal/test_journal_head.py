"""An export with a signed head cannot be changed without the key. Every edit, swap, removal or cut is found."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given
from hypothesis import strategies as st

from orga.client.journal.file import JournalHead, SealedHead, export_check, head_check, sealed_head
from orga.workflows.types.status import JournalEntry
from tests.support.values.core import at
from tests.support.values.journals import Made, a_journal, journals, rechained, three, without_entry
from tests.support.values.strategies import LAW, json_values, texts

RUN = "agent-1"
KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
TRUSTED = [KEY.public_key()]
NOW = at(1_000)


def faults(entries: list[JournalEntry], head: SealedHead | None, keys: Any = TRUSTED, run: str = RUN) -> str:
    """Return the faults of the file alone: its chain and its head, without a history."""
    checks = [export_check(run, entries, entries), head_check(run, entries, head, keys)]
    return "; ".join(check.detail for check in checks if not check.ok)


@LAW
@given(journals)
def test_a_signed_journal_has_no_fault(made: list[Made]) -> None:
    entries = a_journal(made)
    assert faults(entries, sealed_head(RUN, entries, KEY, NOW)) == ""


@LAW
@given(journals, st.data())
def test_a_change_of_any_field_is_found_without_the_key(made: list[Made], data: st.DataObject) -> None:
    """A forger can rebuild the chain, but not the signature."""
    entries = a_journal(made)
    index = data.draw(st.integers(0, len(entries) - 1), "index")
    changes: dict[str, Any] = {
        "timestamp": st.just(at(5_000)),
        "agent": st.just("another"),
        "iteration": st.just(100),
        "event": texts,
        "data": st.dictionaries(texts, json_values, max_size=2),
    }
    field = data.draw(st.sampled_from(sorted(changes)), "field")
    value = data.draw(changes[field], "value")
    forged = [*entries]
    forged[index] = entries[index].model_copy(update={field: value})
    assume(forged[index].model_dump_json() != entries[index].model_dump_json())

    assert f"breaks at entry {index}" in faults(forged, sealed_head(RUN, entries, KEY, NOW))
    assert "replaced" in faults(rechained(forged), sealed_head(RUN, entries, KEY, NOW))


@LAW
@given(journals, st.data())
def test_swaps_removals_and_cuts_are_found_even_in_a_rebuilt_chain(made: list[Made], data: st.DataObject) -> None:
    entries = a_journal(made)
    head = sealed_head(RUN, entries, KEY, NOW)
    index = data.draw(st.integers(0, len(entries) - 2), "index")
    swapped = [*entries[:index], entries[index + 1], entries[index], *entries[index + 2 :]]
    dropped = without_entry(entries, index)

    assert "breaks at entry" in faults(swapped, head)
    assert "breaks at entry" in faults(dropped, head)
    assert f"entry {len(dropped)} is missing" in faults(rechained(dropped), head)
    assert f"entry {index} is missing: the head counts {len(entries)}" in faults(entries[:index], head)
    longer = rechained([*entries, entries[0]])
    assert f"entry {len(entries)} is beyond the head" in faults(longer, head)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"run": "agent-2"}, "its head is that of agent-2", id="another run"),
        pytest.param({"length": 2}, "entry 2 is beyond the head", id="a shorter length"),
        pytest.param({"length": 4}, "entry 3 is missing", id="a greater length"),
        pytest.param({"hash": "00"}, "entry 2 does not have the hash of the head", id="another hash"),
        pytest.param({"signed_at": at(0)}, "the signature is not one over this head", id="another time"),
        pytest.param({"signed_at": None}, "the signature is not one over this head", id="no time"),
        pytest.param({"key_id": "0" * 16}, "which is not trusted", id="another key id"),
    ],
)
def test_every_field_of_the_head_is_signed(change: dict[str, Any], expected: str) -> None:
    entries = three()
    signed = sealed_head(RUN, entries, KEY, NOW)
    assert set(JournalHead.model_fields) == {"run", "length", "hash", "signed_at", "key_id"}
    changed = signed.model_copy(update={"head": signed.head.model_copy(update=change)})
    assert expected in faults(entries, changed)
    assert "not" in head_check("agent-2", entries, changed, TRUSTED).detail


def test_forging_both_journal_and_head_needs_the_key() -> None:
    forged = rechained(without_entry(three(), 1))
    assert "not trusted" in faults(forged, sealed_head(RUN, forged, OTHER, NOW))
    named_as_trusted = sealed_head(RUN, forged, OTHER, NOW)
    head = named_as_trusted.head.model_copy(update={"key_id": sealed_head(RUN, forged, KEY, NOW).head.key_id})
    stolen_name = named_as_trusted.model_copy(update={"head": head})
    assert faults(forged, stolen_name) == "the signature is not one over this head"
    assert faults(forged, sealed_head(RUN, forged, None, NOW)) == "its head is not signed"
    assert "it has no head: whether entries followed entry 1 is unknown" in faults(forged, None)


def test_a_signature_of_another_run_is_not_valid() -> None:
    entries = three()
    assert faults(entries, sealed_head("agent-2", entries, KEY, NOW)) == "its head is that of agent-2"


def test_a_signature_needs_a_trusted_key_and_an_unsigned_head_does_not() -> None:
    entries = three()
    assert "which is not trusted; trusted: none" in faults(entries, sealed_head(RUN, entries, KEY, NOW), keys=[])
    assert faults(entries, sealed_head(RUN, entries, None, NOW), keys=[]) == ""
    assert faults(entries, sealed_head(RUN, entries, KEY, NOW), keys=[OTHER.public_key(), KEY.public_key()]) == ""


def test_a_removed_signature_is_found_even_without_a_trusted_key() -> None:
    entries = three()
    bare = sealed_head(RUN, entries, KEY, NOW).model_copy(update={"signature": ""})
    assert faults(entries, bare, keys=[]) == "its head is not signed"
