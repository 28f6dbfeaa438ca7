"""The documents of this project in a folder of their own, so that the demo is not answered from its own source."""

import shutil
from pathlib import Path

from orga.client.cli.exit_codes import UsageError
from orga.client.server.home import prepared_home
from orga.own_code import ROOT

NAMES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs")


def copied_documents() -> Path:
    """Return a folder with README, ARCHITECTURE, CHANGELOG and docs as they are now.

    Raises:
        UsageError: This is no clone of the project.
    """
    found = [ROOT / name for name in NAMES if (ROOT / name).exists()]
    if not found:
        raise UsageError("the demo reads the project's own documents; run it from a clone of the project")
    folder = prepared_home().folder / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in found:
        if path.is_dir():
            shutil.copytree(path, folder / path.name)
        else:
            shutil.copy(path, folder)
    return folder
