"""Commands of the corpus: only listed programs run, with exactly the given arguments."""

import json
import os
import sys
from pathlib import Path

import pytest

from orga.activities.adapters.tools.root import FileRoot
from orga.activities.adapters.tools.run_command import RunCommand
from tests.support.tools.calls import failure, result
from tests.support.values.corpora import Case, cases, filled

SHOW = f"""#!{sys.executable} -IS
import json, os, sys
print(json.dumps([sys.argv[1:], sorted(os.environ)]))
"""


@pytest.fixture(name="canary")
def a_file_that_must_not_be(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture(name="tool")
def a_tool(tmp_path: Path) -> RunCommand:
    (tmp_path / "root" / "bin").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for folder in (tmp_path / "bin", tmp_path / "root", tmp_path / "root" / "bin"):
        (folder / "show").write_text(SHOW)
        (folder / "show").chmod(0o755)
    (tmp_path / "root" / "arguments.txt").write_text("--from-a-file")
    return RunCommand(FileRoot(tmp_path / "root"), ["show"], search_path=str(tmp_path / "bin"))


@pytest.mark.parametrize("case", cases("commands", "refused"))
async def test_only_listed_programs_run(tool: RunCommand, canary: Path, case: Case) -> None:
    error = await failure(tool, command=[filled(part, canary=str(canary)) for part in case["command"]])
    assert error.kind in {"CommandRefused", "InvalidArguments"}
    assert not error.retryable
    assert not canary.exists()


@pytest.mark.parametrize("case", cases("commands", "literal"))
async def test_arguments_are_passed_unchanged(tool: RunCommand, canary: Path, case: Case) -> None:
    arguments = [filled(part, canary=str(canary)) for part in case["arguments"]]
    shown, environment = json.loads(await result(tool, command=["show", *arguments]))
    assert shown == arguments
    names = {name for name in environment if not name.startswith("GIT_CONFIG_")}
    assert names <= {"PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "PYTHONPYCACHEPREFIX"}
    assert not canary.exists()
    assert os.environ.keys() - set(environment)
