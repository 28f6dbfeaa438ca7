"""A folder with a configuration that nobody has trusted yet, and a command line that trusts none by itself."""

from pathlib import Path

import pytest

from tests.support.programs.inline_command import InlineOrga
from tests.support.programs.orga_command import an_orga

PROGRAMS = '[tools.commands]\nallow = ["git"]'
"""A configuration that makes the run ask."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project folder, which is the working folder."""
    monkeypatch.delenv("ORGA_TRUST")
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "link").symlink_to("/")
    monkeypatch.chdir(folder)
    return folder


def write_config(folder: Path, text: str) -> Path:
    """Write the folder's configuration, and return its path."""
    path = folder / "orga.toml"
    path.write_text(text)
    return path


def orga_in(folder: Path, **env: str) -> InlineOrga:
    """Return the command line of a person who works there."""
    given = an_orga(folder, folder.parent / "home", **env).env
    del given["ORGA_TRUST"]
    return InlineOrga(folder, given)
