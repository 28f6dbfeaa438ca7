"""The mark of a script's task queue is the same at each start, and different from other programs."""

import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from orga import Agent, OrgaPlugin
from orga.client.config.sections import OrgaConfig
from orga.client.workers.script import _program_mark

PURELIB = Path(sysconfig.get_paths()["purelib"])


def runs_as(monkeypatch: pytest.MonkeyPatch, file: Path | None) -> None:
    main = ModuleType("__main__")
    if file is not None:
        main.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", main)


@pytest.fixture(
    params=[
        pytest.param(None, id="a notebook"),
        pytest.param(PURELIB / "uvicorn" / "__main__.py", id="run by a package"),
        pytest.param(Path(sysconfig.get_paths()["scripts"]) / "celery", id="run by a command of a package"),
        pytest.param(Path(sysconfig.get_paths()["stdlib"]) / "asyncio" / "__main__.py", id="run by Python"),
    ]
)
def _shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    runs_as(monkeypatch, request.param)


@pytest.mark.usefixtures("_shared")
def test_a_program_without_its_own_file_is_identified_by_folder_and_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clerk = _program_mark(["clerk", "pay"])
    assert clerk == _program_mark(["pay", "clerk"])
    assert clerk != _program_mark(["librarian"])
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert clerk != _program_mark(["clerk", "pay"])


def test_a_script_keeps_its_queue_if_its_agents_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs continue when it is started again, even with one more agent."""
    runs_as(monkeypatch, tmp_path / "one.py")
    one = _program_mark(["clerk"])
    monkeypatch.chdir(tmp_path)
    assert one == _program_mark(["clerk", "librarian"])
    runs_as(monkeypatch, tmp_path / "other.py")
    assert one != _program_mark(["clerk"])


def test_a_configuration_made_in_code_counts_as_more_than_the_file(tmp_path: Path) -> None:
    agents = {"clerk": Agent("clerk").settings}
    made = OrgaPlugin(config=OrgaConfig(agents=agents), root=tmp_path)
    assert (made.has_more_than_the_file, made.names) == (True, ["clerk"])
    assert not OrgaPlugin(root=tmp_path).has_more_than_the_file
