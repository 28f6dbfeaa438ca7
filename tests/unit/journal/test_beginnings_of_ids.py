"""Names that can be the beginning of a run's id."""

import pytest
import uuid_utils

from orga.client.runs.ids import ID_PREFIXES, can_be_id_prefix

UUID = str(uuid_utils.uuid7())


@pytest.mark.parametrize("head", ID_PREFIXES)
def test_any_part_of_an_id_but_not_a_whole_one_can_be_a_prefix(head: str) -> None:
    """For example, the id of a session without its last character is longer than the whole id of an agent's run."""
    assert can_be_id_prefix(f"{head}{UUID[:-1]}")
    assert can_be_id_prefix(f"{head}{UUID[:4]}")
    assert not can_be_id_prefix(f"{head}{UUID}")
    assert not can_be_id_prefix(f"{head}{UUID[:3]}")


def test_a_whole_uuid_without_its_prefix_can_be_one() -> None:
    assert can_be_id_prefix(UUID)
    assert not can_be_id_prefix(f"mine-{UUID}x")
