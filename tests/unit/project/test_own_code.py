"""Our names mean our modules in any working folder, and each module keeps its first code."""

import json
import subprocess
import sys
import sysconfig
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from orga import own_code
from orga.finder import HeldCode
from orga.own_code import ROOT, is_installed, pin, remove_from_path, seal
from orga.start import module_command
from tests.support.programs.installs import a_hostile_folder, an_install


def a_finder() -> HeldCode:
    return HeldCode(own_code._OwnCode().find_loader)


def imported(finder: HeldCode, name: str) -> ModuleType:
    spec = finder.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_runs_share_only_code() -> None:
    finder = a_finder()
    one, other = (imported(finder, "orga.workflows.decisions.limits") for _ in range(2))

    assert one is not other
    assert one.stop_reason is not other.stop_reason
    assert one.stop_reason.__code__ is other.stop_reason.__code__
    assert one.__file__ == other.__file__ == str(ROOT / "orga" / "workflows" / "decisions" / "limits.py")


def test_code_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_for_real = SourceFileLoader.get_code

    def counted(loader: SourceFileLoader, name: str) -> CodeType | None:
        compiled.append(name)
        return compile_for_real(loader, name)

    monkeypatch.setattr(SourceFileLoader, "get_code", counted)
    finder = a_finder()
    for _ in range(3):
        imported(finder, "orga.workflows.decisions.control")
    assert compiled == ["orga.workflows.decisions.control"]


@pytest.mark.parametrize(
    "name", ["httpx", "workflowsx", "tests.support.runs.loop", "worker", "workflows.agent", "activities"]
)
def test_other_modules_are_left_to_other_finders(name: str) -> None:
    """A project may have its own `worker.py` and its own `workflows/`."""
    assert a_finder().find_spec(name) is None


@pytest.mark.parametrize(
    "name", ["orga.workflows.decisions.nothing", "orga.activities.nothing", "orga.client.cli.nothing.at_all"]
)
def test_a_missing_module_of_ours_is_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        a_finder().find_spec(name)
    assert caught.value.name == name


def test_the_finder_is_set_up_once() -> None:
    assert pin() is pin()
    assert [type(finder) for finder in sys.meta_path].count(HeldCode) == 1


def test_a_folder_writable_by_runs_is_removed_from_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This also covers subfolders, links to it, and the empty string. Installed packages stay."""
    (tmp_path / "src").mkdir()
    link = tmp_path.with_name("link to it")
    link.symlink_to(tmp_path)
    before = [*sys.path]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own_code, "removed_folders", aside := list[Path]())
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *before, str(tmp_path / "src"), str(link), "src"])
    remove_from_path(tmp_path)
    assert sys.path == before
    assert {*aside} == {tmp_path, tmp_path / "src"}


def test_installed_packages_in_a_folder_writable_by_runs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment is usually inside its project."""
    monkeypatch.setattr(own_code, "removed_folders", list[Path]())
    monkeypatch.setattr(sys, "path", before := [place for place in sys.path if "site-packages" in place])
    assert before
    remove_from_path(Path(before[0]).parents[3])
    assert sys.path == before


PROBE = """
import json, subprocess, sys
from pathlib import Path

def main():
    import orga.workflows.phases.gate
    from orga.child import held_program
    from orga.own_code import ROOT, seal
    seal()
    for file in [*ROOT.rglob("*.py")]:
        file.write_text("raise SystemExit('what was written later was run')")
    for folder in [*ROOT.rglob("__pycache__")]:
        for file in folder.iterdir():
            file.unlink()
    (ROOT / "orga" / "workflows" / "added.py").write_text("")
    for name in [name for name in sys.modules if name.startswith(("orga.workflows", "orga.activities"))]:
        del sys.modules[name]  # as the sandbox of a run does it
    import orga.workflows.phases.gate, orga.workflows.agent, orga.activities.gate.gate
    found = [orga.workflows.phases.gate.__file__, hasattr(orga.workflows.phases.gate, "judge_reply")]
    try:
        import orga.workflows.added
    except ModuleNotFoundError as error:
        found.append(error.name)
    for module, site in (("tools.page_text", True), ("sandbox.supervisor", False)):
        program = held_program(f"orga.activities.adapters.{module}", "0", site=site)
        done = subprocess.run(program.argv, pass_fds=(program.number,), input=b"<p>read</p>", capture_output=True)
        found.append(done.stdout.decode() + done.stderr.decode()[-60:])
    print(json.dumps(found))
"""


def test_changes_of_our_files_after_the_start_are_never_run(tmp_path: Path) -> None:
    """For example, if orga is developed with orga, the root of the file tools contains the install."""
    install = an_install(tmp_path)
    (install / "orga" / "client" / "probe.py").write_text(PROBE)
    command = [str(install / "orga" / "isolated.py"), "orga.client.probe"]
    done = subprocess.run([sys.executable, "-I", *command], cwd=install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    gate, is_gate, added, page, supervisor = json.loads(done.stdout)
    assert (gate, is_gate) == (str(install / "orga" / "workflows" / "phases" / "gate.py"), True)
    assert added == "orga.workflows.added"
    assert json.loads(page) == ["", "read"]
    assert supervisor == ""


@pytest.mark.parametrize("path", [None, "", ".", ":/nowhere", "sub:."])
def test_no_module_of_the_working_folder_is_imported(
    path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = a_hostile_folder(tmp_path)
    monkeypatch.setenv("PYTHONPATH", path) if path is not None else monkeypatch.delenv("PYTHONPATH", raising=False)
    command = module_command("orga.worker", "--check")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not (folder / "imported").exists(), (folder / "imported").read_text()
    assert json.loads(done.stdout)["problems"] == []


def test_a_sealed_process_does_not_read_our_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_code._own, "is_sealed", False)
    seal()
    read_for_real = SourceFileLoader.get_data

    def read(loader: SourceFileLoader, path: str) -> bytes:
        assert path.startswith(sys.prefix) or not path.startswith(str(ROOT))
        return read_for_real(loader, path)

    monkeypatch.setattr(SourceFileLoader, "get_data", read)
    assert imported(pin(), "orga.workflows.phases.gate").judge_reply


def test_the_package_folders_are_looked_up_once_for_any_number_of_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An application has thousands of modules, and its worker must not be delayed for seconds at its start."""
    own_code._installed_folders.cache_clear()
    asked: list[str] = []

    def get_path(name: str) -> str:
        asked.append(name)
        return sysconfig.get_path(name)

    monkeypatch.setattr(own_code, "get_path", get_path)
    found = {is_installed(Path(module.__file__ or "/")) for module in (pytest, sysconfig) for _ in range(50)}
    assert (found, is_installed(ROOT / "worker.py"), len(asked)) == ({True}, False, 4)
