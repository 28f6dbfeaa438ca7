"""A configuration of another user, or one that every user can write, is not read."""

import os
from pathlib import Path

import pytest

from orga.client.config.file import load_config
from orga.client.config.trust.check import ownership_problem
from orga.client.errors import ConfigError
from tests.support.programs.entered_folder import project, write_config

__all__ = ["project"]


@pytest.mark.parametrize(
    ("mode", "folder_mode", "user", "says"),
    [
        pytest.param(0o644, 0o755, os.geteuid(), None, id="own file"),
        pytest.param(0o664, 0o775, os.geteuid(), None, id="writable by a group"),
        pytest.param(0o666, 0o755, os.geteuid(), "can be written by every user", id="a world-writable file"),
        pytest.param(0o644, 0o777, os.geteuid(), "can be written by every user", id="a world-writable folder"),
        pytest.param(0o644, 0o1777, os.geteuid(), "can be written by every user", id="a sticky world-writable folder"),
    ],
)
def test_a_file_that_others_can_write_is_refused(
    project: Path, mode: int, folder_mode: int, user: int, says: str | None
) -> None:
    path = write_config(project, "")
    path.chmod(mode)
    project.chmod(folder_mode)
    found = ownership_problem(path, user)
    assert (found is None) if says is None else (found and says in found)
    if says:
        (project / "deep").mkdir()
        with pytest.raises(ConfigError, match=says):
            load_config(folder=project / "deep", env={"ORGA_TRUST": "1"})
        load_config(path, folder=project, env={"ORGA_TRUST": "1"})


@pytest.mark.parametrize("given", ["orga.toml", "."])
def test_a_file_of_another_user_is_not_read(project: Path, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root can change the owner of a file. For other users the test changes the effective user."""
    path, user = write_config(project, ""), os.geteuid()
    if user == 0:
        os.chown(project / given, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    for env in ({}, {"ORGA_TRUST": "1"}):
        with pytest.raises(ConfigError, match="belongs to another user"):
            load_config(folder=project, env=env)
    assert load_config(path, folder=project, env={"ORGA_TRUST": "1"}).file == path
