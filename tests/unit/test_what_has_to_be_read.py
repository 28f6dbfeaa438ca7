"""How much of the code one has to read: numbers that were reached, and do not grow again.

Whoever gets one of them lower lowers it here.
"""

import re

import pytest

from bench.files_passed import files_passed
from bench.known_to import known_to, lines_of_workflows

PASSED = {"answer": 30, "tools-and-a-denial": 41, "criticised": 45}
"""Files of `workflows/` that a recorded run goes through."""

KNOWN = {"critics": 14, "sagas": 8, "DELEGATE": 3, "TERMINATE": 3, "DECIDE": 3, "SAGA": 3, "ASK_USER": 3}
"""Product files that know a feature, or the constant of a loop tool."""

FILES = 148
FILES_OF_THE_LOOP = 107
"""Beside what goals and knowledge have for themselves."""

LINES_OF_A_FILE = 400

APART = re.compile(r"workflows/(goal\.py|.*/goals/|.*/(journal_)?(knowledge|recall)\.py)")


@pytest.mark.parametrize(("name", "most"), PASSED.items(), ids=PASSED)
async def test_a_run_goes_through_no_more_files(name: str, most: int) -> None:
    found = await files_passed(name)
    assert "orga/workflows/agent.py" in found
    assert len(found) <= most, sorted(found)


@pytest.mark.parametrize(("feature", "most"), KNOWN.items(), ids=KNOWN)
def test_a_feature_is_known_to_no_more_files(feature: str, most: int) -> None:
    found = known_to(feature)
    assert found, "it is still known by this name"
    assert len(found) <= most, found


def test_workflow_code_has_no_more_files_and_none_is_long() -> None:
    lines = lines_of_workflows()
    assert len(lines) <= FILES
    assert len([file for file in lines if not APART.match(file)]) <= FILES_OF_THE_LOOP
    assert {file: count for file, count in lines.items() if count > LINES_OF_A_FILE} == {}
