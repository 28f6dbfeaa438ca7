"""A configuration that no worker could begin with: the command ends with exit code 2, in its own words."""

from pathlib import Path

import pytest

from tests.support.programs.noted_folder import home, orga
from tests.support.programs.orga_command import Orga

__all__ = ["home", "orga"]


@pytest.mark.parametrize(
    "arguments", [("run", "x"), ("goal", "x"), ("chat", "--say", "x"), ("worker",), ("dev",)], ids=lambda each: each[0]
)
@pytest.mark.parametrize("broken", ["root", "policy"])
def test_no_worker_is_begun(
    orga: Orga, arguments: tuple[str, ...], broken: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Path(orga.folder)
    if broken == "root":
        (folder / "orga.toml").write_text('[tools.files]\nroot = "nosuch"\n')
    else:
        break_policy(folder)
    done = orga(*arguments, ORGA_TRUST="1")
    assert done.code == 2, done.err
    assert "orga-worker:" not in done.err + capfd.readouterr().err  # one in the foreground writes there itself
    assert ("nosuch is not a folder; create it" if broken == "root" else "mine.cedar") in done.err


def test_nor_for_a_run_or_a_session_that_is_there(orga: Orga) -> None:
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
