"""With an unusable configuration a command ends with exit code 2 and its own message, and starts no worker."""

from pathlib import Path

import pytest

from tests.support.programs.noted_folder import home, orga
from tests.support.programs.orga_command import Orga

__all__ = ["home", "orga"]


@pytest.mark.parametrize(
    "arguments", [("run", "x"), ("goal", "x"), ("chat", "--say", "x"), ("worker",), ("dev",)], ids=lambda each: each[0]
)
@pytest.mark.parametrize("broken", ["root", "policy"])
def test_no_worker_is_started(
    orga: Orga, arguments: tuple[str, ...], broken: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Path(orga.folder)
    if broken == "root":
        (folder / "orga.toml").write_text('[tools.files]\nroot = "nosuch"\n')
    else:
        break_policy(folder)
    done = orga(*arguments, ORGA_TRUST="1")
    assert done.code == 2, done.err
    assert (
        "orga-worker:" not in done.err + capfd.readouterr().err
    )  # a foreground worker would write to this stderr itself
    assert ("nosuch is not a folder; create it" if broken == "root" else "mine.cedar") in done.err


def test_no_worker_is_started_for_an_existing_run_or_session(orga: Orga) -> None:
    assert orga("chat", "--id", "a-talk", "--say", "x").code == 0
    assert orga("run", "x", "--id", "a-run", "--detach").code == 0
    break_policy(Path(orga.folder))
    for arguments in (("attach", "a-run"), ("chat", "a-talk", "--say", "y"), ("demo",)):
        done = orga(*arguments, ORGA_TRUST="1")
        assert done.code == 2, done.err
        assert "orga-worker:" not in done.err
        assert "mine.cedar" in done.err


def break_policy(folder: Path) -> None:
    (folder / "policies").mkdir()
    (folder / "policies" / "mine.cedar").write_text("permit(")
