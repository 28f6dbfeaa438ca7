"""The folder of the server's files."""

from pathlib import Path

import pytest

from orga.client.errors import ServerUnavailable
from orga.client.server.home import cache_folder, prepare_home, server_home


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({}, "HOME/.local/share/orga", id="the user's data folder"),
        pytest.param({"XDG_DATA_HOME": "/data"}, "/data/orga", id="XDG_DATA_HOME moves it"),
        pytest.param({"XDG_DATA_HOME": ""}, "HOME/.local/share/orga", id="an empty variable is none"),
        pytest.param({"XDG_DATA_HOME": "/data", "ORGA_HOME": "/mine"}, "/mine", id="ORGA_HOME wins, as it is"),
        pytest.param({"ORGA_HOME": "~/mine"}, "HOME/mine", id="a tilde is the home folder"),
    ],
)
def test_server_home(
    environment: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_DATA_HOME", "ORGA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": str(tmp_path)} | environment).items():
        monkeypatch.setenv(name, value)

    assert server_home().folder == Path(expected.replace("HOME", str(tmp_path)))


def test_the_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "orga"


def test_the_folder_is_private_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "a" / "b"))
    assert prepare_home().folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "place",
    [pytest.param("file", id="a file in its place"), pytest.param("file/below", id="a file as its parent")],
)
def test_an_unwritable_folder_is_reported_with_a_remedy(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / place))
    with pytest.raises(ServerUnavailable, match=rf"{tmp_path / place} cannot be written .*; .* ORGA_HOME"):
        prepare_home()
