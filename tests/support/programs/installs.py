"""Copies of orga that a test may change, and folders with modules that have our names."""

import shutil
from pathlib import Path

from orga.own_code import ROOT

FOREIGN = ("workflows", "activities", "client", "worker", "orga", "temporalio", "pydantic", "json", "typing", "asyncio")


def an_install(folder: Path) -> Path:
    """Copy our code into a folder, and return it."""
    shutil.copytree(ROOT / "orga", folder / "orga", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def a_hostile_folder(folder: Path) -> Path:
    """Return a folder with modules of the names that a worker imports. Each leaves a mark when it is imported."""
    mark = f"open({str(folder / 'imported')!r}, 'a').write(__name__ + ' ')\n"
    (folder / "sub").mkdir()
    for place in (folder, folder / "sub"):
        for name in FOREIGN:
            (place / f"{name}.py").write_text(mark)
            (place / name).mkdir()
            (place / name / "__init__.py").write_text(mark)
        (place / "sitecustomize.py").write_text(mark)
        (place / "usercustomize.py").write_text(mark)
    return folder
