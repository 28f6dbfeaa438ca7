"""docs/tutorial.md is followed: its files are written, its lines typed into one shell, its output compared."""

import os
import re
import shlex
import signal
import subprocess
import sys
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.parts.free_port import free_port
from tests.support.programs.noted_folder import home
from tests.support.programs.orga_command import ROOT, Orga, an_orga

__all__ = ["home"]

pytestmark = pytest.mark.timeout(600)

TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
BLOCK = re.compile(r"^```(\w+)( install)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"(?:#|//) ([\w/]+\.[\w.]+)\n")
PORT_OF_THE_MODEL = "8377"
WAITS = {"orga inbox": "until orga inbox | grep . ; do sleep 0.5; done"}
"""The command that a person repeats until its output appears."""


@dataclass(frozen=True)
class Typed:
    """Lines of one block, and the output shown for them."""

    lines: str
    shown: list[str]

    def in_shell(self, output: Path) -> str:
        """Return the lines for one shell. The first failure ends the shell; a background command continues."""
        lines = "\n".join(WAITS.get(line, line) for line in self.lines.splitlines())
        return f"{{\n{lines}\n}} > {output} 2>&1\n"


def _blocks(port: int) -> tuple[dict[str, str], list[Typed]]:
    """Return the files and the command blocks. The installation has its own test."""
    files: dict[str, str] = {}
    typed: list[Typed] = []
    for language, installs, content in BLOCK.findall(TUTORIAL.replace(PORT_OF_THE_MODEL, str(port))):
        if found := NAMED.match(content):
            files[found[1]] = content
        elif language == "sh" and not installs:
            typed.append(Typed(content, []))
        elif typed:
            typed[-1].shown.extend(content.splitlines())
    return files, typed


@pytest.fixture
def shop(home: Path, tmp_path: Path) -> Orga:
    """An empty folder of a user without settings, whose `python` and `orga` are those under test."""
    folder, programs = tmp_path / "shop", tmp_path / "programs"
    folder.mkdir()
    programs.mkdir()
    program = f'exec {shlex.quote(sys.executable)} -c "from orga.client.cli.main import main; main()" "$@"'
    (programs / "orga").write_text(f"#!/bin/sh\n{program}\n")
    (programs / "orga").chmod(0o755)
    orga = an_orga(folder, home)
    orga.env["PATH"] = f"{programs}:{Path(sys.executable).parent}:{orga.env['PATH']}"
    orga.env.pop("ORGA_TRUST")  # a reader of the tutorial has not set any trust
    orga.env.pop("OPA_TOKEN")  # and no setting that would make `orga init` ask
    return orga


def test_the_tutorial_works_from_its_first_line_to_its_last(shop: Orga, tmp_path: Path) -> None:
    files, typed = _blocks(free_port())
    later = tmp_path / "later"
    for name, content in files.items():
        place = (shop.folder if name.startswith("handbook/") else later) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    outputs = [tmp_path / f"{number}.txt" for number in range(len(typed))]
    script = "".join(block.in_shell(output) for block, output in zip(typed, outputs, strict=True))
    refused = f'! orga run --agent clerk "When?" > {tmp_path / "refused.txt"} 2>&1\n'
    script = script.replace("orga list\n", f"orga list\ncp -R {later}/. .\n", 1)  # `orga init` runs before they exist
    script = script.replace("python desk.py &\n", f"{refused}python desk.py &\n")
    shell = ["bash", "-ec", f"trap 'kill $(jobs -p); orga server --stop' EXIT\n{script}"]
    code, errors = _followed(shell, shop)

    written = [output.read_text() if output.exists() else "" for output in outputs]
    assert code == 0, [*written, errors]
    assert [
        (line, text) for block, text in zip(typed, written, strict=True) for line in _unseen(text, block.shown)
    ] == []
    assert (shop.folder / "ledger.txt").read_text() == "ORD-7 900\n"
    assert "no worker polls task queue 'shop'" in (tmp_path / "refused.txt").read_text()


def _followed(shell: list[str], shop: Orga) -> tuple[int, str]:
    """Run the script and remove its traces. Return its exit code and its stderr."""
    process = subprocess.Popen(
        shell,
        cwd=shop.folder,
        env=shop.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=580)
        return process.returncode, errors
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _unseen(written: str, shown: list[str]) -> list[str]:
    """Return the lines whose words do not follow each other in any line of the output."""
    patterns = {line: ".*".join(map(re.escape, line.split())) for line in shown}
    return [line for line, pattern in patterns.items() if not re.search(pattern, written)]


def test_it_is_installed_from_a_clone_in_a_neighbouring_folder(tmp_path: Path) -> None:
    """pip builds a wheel of the folder. The dependencies are already installed."""
    (lines,) = [content for _, installs, content in BLOCK.findall(TUTORIAL) if installs]
    named = re.search(r"pip install (\.\./orga) ", lines)
    assert named
    (tmp_path / "orga").symlink_to(ROOT)
    (tmp_path / "shop").mkdir()
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        named[1],
    ]
    subprocess.run(build, cwd=tmp_path / "shop", check=True, capture_output=True)
    (wheel,) = (tmp_path / "shop").glob("orga-*.whl")
    assert {"orga/start.py", "orga/worker.py"} <= {*zipfile.ZipFile(wheel).namelist()}


def test_the_tutorial_contains_each_of_its_programs() -> None:
    files, typed = _blocks(int(PORT_OF_THE_MODEL))
    programs = {word for block in typed for word in re.findall(r"python (\w+\.py)", block.lines)}
    assert programs == {"model.py", "desk.py"}
    assert programs | {"shop.py", "test_shop.py", "policies/clerk.cedar"} <= files.keys()
