"""`orga doctor` finds keys with which no worker starts."""

from pathlib import Path

import pytest

from orga.client.config.sections import OrgaConfig
from orga.client.workers.checked import worker_report
from orga.client.workers.parts import configured_parts
from orga.workflows.types.tool_calls.gate import PERMIT_KEY

GOOD = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        pytest.param("short", "each key needs 32 characters or more", id="short"),
        pytest.param(f"{GOOD},short", "each key needs 32 characters or more", id="one of two is short"),
        pytest.param(",", "each key needs 32 characters or more", id="no key at all"),
        pytest.param("@/nowhere/permits", "the file that it names cannot be read", id="a missing file"),
    ],
)
def test_an_invalid_permit_key_is_a_problem(tmp_path: Path, key: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        configured_parts(OrgaConfig(), {PERMIT_KEY: key}, tmp_path, knows_attributes=False)
    [found] = list(worker_report(OrgaConfig(), tmp_path, {PERMIT_KEY: key})["problems"])
    assert (found["place"], problem in found["problem"], PERMIT_KEY in found["remedy"]) == ("permits", True, True)


def test_valid_keys_are_no_problem(tmp_path: Path) -> None:
    assert worker_report(OrgaConfig(), tmp_path, {PERMIT_KEY: f"{GOOD}, {GOOD[::-1]}"})["problems"] == []
