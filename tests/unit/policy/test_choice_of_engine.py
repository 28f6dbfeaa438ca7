"""Which engine decides, and that none replaces an unavailable one."""

from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.policy.cedar import CedarPolicies
from orga.activities.adapters.policy.engines import (
    AllowAll,
    ListedTools,
    PolicySettings,
    engine_name,
    gate_execution,
    policy_engine,
)
from orga.activities.adapters.policy.opa import OpaServer
from orga.client.config.file import load_config
from orga.client.config.policy import policy_settings
from tests.support.runs.loop import Deny
from tests.support.values.policies import PERMIT_ALL, a_folder

URL = "http://127.0.0.1:8181"
OPA: dict[str, Any] = {"opa_path": "orga/decision", "opa_timeout_s": 3.0}


@pytest.mark.parametrize(
    ("has_files", "given", "name", "kind", "execution"),
    [
        pytest.param(False, {}, "default", ListedTools, "local", id="nothing is set: fail closed"),
        pytest.param(True, {}, "cedar", CedarPolicies, "local", id="Cedar files"),
        pytest.param(True, {"opa_url": URL}, "cedar", CedarPolicies, "local", id="Cedar files before OPA"),
        pytest.param(False, {"opa_url": URL}, "opa", OpaServer, "activity", id="OPA"),
        pytest.param(True, {"engine": "opa", "opa_url": URL}, "opa", OpaServer, "activity", id="OPA if asked for"),
        pytest.param(True, {"engine": "allow"}, "allow", AllowAll, "local", id="everything if asked for"),
        pytest.param(True, {"engine": "default"}, "default", ListedTools, "local", id="the default if asked for"),
    ],
)
def test_the_configuration_selects_the_engine(
    tmp_path: Path, has_files: bool, given: dict[str, Any], name: str, kind: type, execution: str
) -> None:
    settings = PolicySettings(**OPA, **given, folder=a_folder(tmp_path, a=PERMIT_ALL) if has_files else None)
    engine = policy_engine(settings)
    assert (engine_name(settings), type(engine), gate_execution(engine)) == (name, kind, execution)


def test_an_engine_of_an_application_counts_as_embedded() -> None:
    assert gate_execution(Deny()) == "local"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({"engine": "cedar"}, "needs a folder", id="Cedar without a folder"),
        pytest.param({"folder": Path("gone")}, "there is no such folder", id="a missing folder"),
        pytest.param({"engine": "opa"}, "needs the url", id="OPA without a server"),
        pytest.param({"opa_url": URL, "opa_wasm": Path("a")}, "exclude each other", id="both kinds of OPA"),
        pytest.param({"opa_wasm": Path("gone.wasm")}, "gone.wasm cannot be read", id="no compiled policy"),
    ],
)
def test_an_unavailable_engine_is_an_error(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        policy_engine(PolicySettings(**OPA, **given))


def settings_of(folder: Path, toml: str | None, **env: str) -> PolicySettings:
    if toml is not None:
        (folder / "orga.toml").write_text(toml)
    below = folder / "below"
    below.mkdir()
    given = {"ORGA_TRUST": "1", **env}
    return policy_settings(load_config(folder=below if toml is not None else folder, env=given).policy, env)


@pytest.mark.parametrize(
    ("toml", "files", "folder"),
    [
        pytest.param("", {"a": PERMIT_ALL}, "policies", id="next to the file, from any folder"),
        pytest.param(None, {"a": PERMIT_ALL}, "policies", id="in the working directory without a file"),
        pytest.param("", {"prod__a": PERMIT_ALL}, "policies", id="of surfaces only"),
        pytest.param("", {}, None, id="an empty folder is none"),
        pytest.param("[policy]\ndir = 'rules'", {"a": PERMIT_ALL}, "rules", id="as configured"),
    ],
)
def test_the_policy_folder_is_found(
    tmp_path: Path, toml: str | None, files: dict[str, str], folder: str | None
) -> None:
    a_folder(tmp_path, **files)
    assert settings_of(tmp_path, toml).folder == (folder and tmp_path / folder)


def test_the_environment_has_priority(tmp_path: Path) -> None:
    a_folder(tmp_path, a=PERMIT_ALL)
    given = {"ORGA_POLICY__DIR": "/etc/orga", "ORGA_POLICY__SURFACE": "prod", "ORGA_POLICY__OPA__TIMEOUT_S": "1"}
    settings = settings_of(tmp_path, "", **given)
    assert (settings.folder, settings.surface, settings.opa_timeout_s) == (Path("/etc/orga"), "prod", 1.0)


@pytest.mark.parametrize(
    ("url", "is_sent"),
    [
        pytest.param("https://opa.example", True, id="https"),
        pytest.param("http://localhost:8181", True, id="this machine"),
        pytest.param("http://opa.example", False, id="without TLS"),
    ],
)
def test_a_token_is_not_sent_without_tls(tmp_path: Path, url: str, is_sent: bool) -> None:
    toml = f"[policy.opa]\nurl = '{url}'"
    if is_sent:
        assert settings_of(tmp_path, toml, OPA_TOKEN="t").opa_token == "t"
    else:
        with pytest.raises(ValueError, match="has to begin with https://"):
            settings_of(tmp_path, toml, OPA_TOKEN="t")
