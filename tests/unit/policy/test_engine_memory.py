"""Policies that are missing at a start are noticed."""

from pathlib import Path

import pytest

from orga.client.config.file import load_config
from orga.client.errors import ConfigError
from orga.client.workers.engine_memory import engine_change_text, remember_engine, remembered_engine


@pytest.mark.parametrize(
    ("stated", "engine", "before", "change"),
    [
        pytest.param("", "default", "cedar", None, id="policies are missing"),
        pytest.param("", "default", "opa", None, id="the server is no longer configured"),
        pytest.param("default", "default", "cedar", "default judges in place of cedar", id="the default is configured"),
        pytest.param("allow", "allow", "cedar", "allow judges in place of cedar", id="policy is configured as off"),
        pytest.param("", "cedar", "default", "cedar judges in place of default", id="policies were added"),
        pytest.param("", "cedar", "cedar", "", id="the same"),
        pytest.param("", "default", "", "", id="the first start"),
    ],
)
def test_a_weaker_engine_must_be_configured(
    tmp_path: Path, stated: str, engine: str, before: str, change: str | None
) -> None:
    (tmp_path / "orga.toml").write_text(f'[policy]\nengine = "{stated}"' if stated else "")
    config = load_config(folder=tmp_path)
    if change is None:
        with pytest.raises(ConfigError, match=r'^policy: .* restore .* say \[policy\] engine = "default"'):
            engine_change_text(config, engine, before)
    else:
        assert engine_change_text(config, engine, before) == (f"policy: {change}" if change else "")


def test_each_configuration_has_its_own_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "orga.toml").write_text("")
    first, second = (load_config(folder=tmp_path / name) for name in ("a", "b"))
    remember_engine(first, "cedar")
    remember_engine(second, "default")
    assert (remembered_engine(first), remembered_engine(second)) == ("cedar", "default")
    assert (tmp_path / "home" / "engines.json").stat().st_mode & 0o777 == 0o600
