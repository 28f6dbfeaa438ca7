"""Commands that ask for trust in a folder, and giving, remembering and revoking it."""

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from orga.client.config.file import load_config
from orga.client.config.trust.check import Untrusted
from tests.support.programs.entered_folder import PROGRAMS, orga_in, project, write_config
from tests.support.programs.orga_command import COMMAND

__all__ = ["project"]


def test_trust_is_shown_remembered_listed_and_revoked(project: Path) -> None:
    path = write_config(project, PROGRAMS)
    orga = orga_in(project)
    given = orga("trust", str(project))
    assert (given.code, given.out) == (0, f"trusted as it is now: {path}\n")
    assert 'tools.commands.allow = ["git"]: lets agents start programs' in given.err
    store = project.parent / "home" / "trust.json"
    assert (store.stat().st_mode & 0o777, list(json.loads(store.read_text()))) == (0o600, [str(path)])
    assert str(path) in orga("trust", "--list").out
    assert load_config(folder=project).file
    assert "is not trusted any more" in orga("trust", "--revoke").out
    with pytest.raises(Untrusted):
        load_config(folder=project)


def test_an_unreadable_store_trusts_nothing(project: Path) -> None:
    write_config(project, PROGRAMS)
    (project.parent / "home").mkdir()
    (project.parent / "home" / "trust.json").write_text("[")
    assert "trust.json: cannot be read" in orga_in(project)("tools", "list").err


@pytest.mark.parametrize(
    "command",
    [
        ["run", "x"],
        ["worker"],
        ["dev"],
        ["tools", "list"],
        ["tools", "call", "refund"],
        ["tools", "check"],
        ["policy", "check"],
        ["audit", "x"],
        ["fork", "x", "--to-iteration", "1"],
        ["notify", "test"],
        ["list"],
    ],
    ids=" ".join,
)
def test_every_command_refuses_without_trust_and_a_terminal(project: Path, command: list[str]) -> None:
    write_config(project, '[tools]\npython = ["shop:refund"]')
    (project / "shop.py").write_text("open('ran', 'w')\n")
    done = orga_in(project)(*command)
    assert (done.code, done.out) == (2, "")
    assert f"orga trust {project}/orga.toml" in done.err
    assert not (project / "ran").exists()


def test_doctor_reports_it_and_continues_without_the_file(project: Path) -> None:
    write_config(project, '[temporal]\naddress = "127.0.0.1:9"\n[tools]\npython = ["shop:refund"]')
    (project / "shop.py").write_text("open('ran', 'w')\n")
    orga = orga_in(project, TEMPORAL_ADDRESS="127.0.0.1:1")
    done = orga("doctor")
    assert done.code == 6
    assert "✗ config" in done.out
    assert "127.0.0.1:1 " in done.out
    assert not (project / "ran").exists()


def test_a_folder_name_cannot_forge_lines(project: Path) -> None:
    folder = project / "a\n\x1b[2J/orga.toml needs no trust"
    folder.mkdir(parents=True)
    path = write_config(folder, PROGRAMS)
    with pytest.raises(Untrusted) as raised:
        load_config(path, env={})
    assert len(str(raised.value).splitlines()) == 3
    assert "\x1b" not in str(raised.value)


def test_a_value_of_the_file_cannot_forge_lines(project: Path) -> None:
    write_config(
        project,
        'tools.commands.allow = ["a\\n\\u001b[2J\\u202eb"]\n["models"]\n["models".prices]\n'
        '"x\\ny" = { input = 1, output = 1 }',
    )
    done = orga_in(project)("tools", "list")
    assert '["a\\n\\u001b[2J\\u202eb"]' in done.err
    assert "prices.x\\ny" in done.err


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 2)])
def test_a_person_at_a_terminal_is_asked_once(project: Path, answer: str, code: int) -> None:
    write_config(project, PROGRAMS)
    controller, terminal = pty.openpty()
    os.write(controller, answer.encode())
    command, env = [*COMMAND, "tools", "list"], orga_in(project).env
    done = subprocess.run(command, stdin=terminal, stderr=terminal, cwd=project, env=env, timeout=90, check=False)
    output = os.read(controller, 10_000).decode()
    os.close(controller)
    os.close(terminal)
    assert (done.returncode, output.count("Trust it as it is now? [y/N]")) == (code, 1)
    assert orga_in(project)("tools", "list").code == code
