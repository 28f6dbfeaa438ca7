"""Problems that prevent a worker from starting are reported first, with place and remedy."""

from pathlib import Path

import pytest

from orga.client.cli.main import run_command
from orga.client.config.file import load_config
from orga.client.config.policy import require_usable
from orga.client.config.sections import OrgaConfig
from orga.client.errors import ConfigError
from tests.support.values.policies import PERMIT_ALL, a_folder


def test_a_usable_configuration_is_accepted(tmp_path: Path) -> None:
    require_usable(OrgaConfig(), tmp_path, {})
    require_usable(OrgaConfig.model_validate({"policy": {"dir": a_folder(tmp_path, a=PERMIT_ALL)}}), tmp_path, {})


def test_a_root_that_is_no_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^tools\.files\.root: .*/nosuch is not a folder; create it or name another"):
        require_usable(OrgaConfig(), tmp_path / "nosuch", {})


def test_a_policy_that_does_not_compile_is_reported(tmp_path: Path) -> None:
    broken = OrgaConfig.model_validate({"policy": {"dir": a_folder(tmp_path, broken="permit(")}})
    with pytest.raises(ConfigError, match=r"broken\.cedar"):
        require_usable(broken, tmp_path, {})


def test_a_folder_with_the_name_of_the_file_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orga.toml").mkdir()
    with pytest.raises(ConfigError, match="is a folder, and a configuration is a file; rename it"):
        load_config(folder=tmp_path, env={})
    monkeypatch.chdir(tmp_path)
    assert run_command(["run", "x"]) == 2
    assert "is a folder" in capsys.readouterr().err
