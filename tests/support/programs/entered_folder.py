"""A folder with a configuration that nobody has trusted yet, and a command line that trusts none on its own."""

from pathlib import Path

import pytest

from tests.support.programs.inline_command import InlineOrga
from tests.support.programs.orga_command import an_orga

PROGRAMS = '[tools.commands]\nallow = ["git"]'
"""A configuration that asks."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, which is the working folder."""
    monkeypatch.delenv("ORGA_TRUST")
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "link").symlink_to("/")
    monkeypatch.chdir(folder)
    return folder


def write_config(folder: Path, text: str) -> Path:
    """Write the folder's configuration; return its path."""
    path = folder / "orga.toml"
    path.write_text(text)
    return path


def orga_in(folder: Path, **env: str) -> InlineOrga:
    """Return the command line of somebody who works there."""
    given = an_orga(folder, folder.parent / "home", **env).env
    del given["ORGA_TRUST"]
    return InlineOrga(folder, given)
