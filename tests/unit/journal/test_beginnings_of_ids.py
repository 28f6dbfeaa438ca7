"""Which names may be the beginning of a run's id."""

import pytest
import uuid_utils

from orga.client.runs.named import ID_PREFIXES, can_be_id_prefix

UUID = str(uuid_utils.uuid7())


@pytest.mark.parametrize("head", ID_PREFIXES)
def test_all_but_a_whole_id_may_be(head: str) -> None:
    """A session's id that lacks its last character, say: it is longer than the whole id of an agent's run."""
    assert can_be_id_prefix(f"{head}{UUID[:-1]}")
    assert can_be_id_prefix(f"{head}{UUID[:4]}")
    assert not can_be_id_prefix(f"{head}{UUID}")
    assert not can_be_id_prefix(f"{head}{UUID[:3]}")


def test_a_whole_id_without_its_head_may_be() -> None:
    assert can_be_id_prefix(UUID)
    assert not can_be_id_prefix(f"mine-{UUID}x")
