"""A folder with a note, and a home with one embedded server for all tests of a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs.inline_command import an_inline_orga
from tests.support.programs.orga_command import Orga, an_orga


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with an embedded server, which is stopped at the end."""
    folder = tmp_path_factory.mktemp("home")
    yield folder
    an_orga(folder, folder)("server", "--stop")


@pytest.fixture
def orga(home: Path, tmp_path: Path) -> Orga:
    """Commands in a folder with a note. The embedded offline model answers."""
    (tmp_path / "notes.md").write_text("# Notes\n\nThe retry limit is five attempts.\n")
    return an_inline_orga(tmp_path, home)
