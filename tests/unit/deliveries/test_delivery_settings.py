"""`[goals.deliveries]`: the settings of each kind, and that no secret is in the file, an error or a history."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orga.client.config.sections import OrgaConfig
from orga.client.workers.checked import worker_report
from orga.client.workers.parts import configured_parts
from orga.workflows.types.goals.deliveries import MAX_DELIVERIES
from orga.workflows.types.setup import PrepareRequest
from tests.support.web.webhook_receiver import SECRET

TOKEN = "12345:planted-bot-token"
HOOK = "https://hooks.test/t0ken-in-the-address"
ENV = {"HOOK": HOOK, "S": SECRET, "BOT": TOKEN, "PW": "planted-mail-password"}
MAIL = {"kind": "email", "host": "mail.test", "sender": "orga@here.test", "to": ["ada@there.test"]}
ALL: dict[str, dict[str, Any]] = {
    "files": {"kind": "file", "path": "answers/{goal_id}.md", "default": True},
    "hook": {"kind": "webhook", "url_from": "HOOK", "secret_from": "S"},
    "chat": {"kind": "telegram", "token_from": "BOT", "chat_id": "@channel"},
    "room": {"kind": "discord", "url_from": "HOOK"},
    "team": {"kind": "slack", "url_from": "HOOK"},
    "boss": {**MAIL, "username": "orga", "password_from": "PW"},
}


def a_config(**deliveries: dict[str, Any]) -> OrgaConfig:
    return OrgaConfig.model_validate({"goals": {"deliveries": deliveries}}, extra="forbid")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        pytest.param({"kind": "pigeon"}, "Input should be", id="no such kind"),
        pytest.param({"kind": "webhook", "url": HOOK}, 'kind "webhook" needs secret_from', id="no secret"),
        pytest.param({"kind": "webhook", "secret_from": "S"}, "needs either a url or url_from", id="no address"),
        pytest.param({"kind": "telegram", "token_from": "BOT"}, 'kind "telegram" needs chat_id', id="no chat"),
        pytest.param(
            {"kind": "discord", "url_from": "HOOK", "path": "{goal_id}"},
            'path: not of kind "discord"; it has url_from, allow_http',
            id="a key of another kind",
        ),
        pytest.param({"kind": "discord", "url": HOOK}, 'kind "discord" needs url_from', id="a secret in the file"),
        pytest.param({"kind": "file", "path": "answer.md"}, "path: needs {goal_id}", id="one file for all goals"),
        pytest.param({"kind": "file", "path": "{goal_id}{0}"}, "no other braces", id="other braces"),
        pytest.param({"kind": "file", "path": "../{goal_id}"}, "has to lie below the root", id="upwards"),
        pytest.param({"kind": "file", "path": "/tmp/{goal_id}"}, "has to lie below the root", id="absolute"),
        pytest.param({**MAIL, "to": ["a@b.test\nBcc: c@d.test"]}, "String should match", id="a header in an address"),
        pytest.param({**MAIL, "username": "x"}, "username and password_from go together", id="half a login"),
    ],
)
def test_an_invalid_delivery_is_reported(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        a_config(ops=wrong)
    assert says in str(refused.value)


@pytest.mark.parametrize("name", ["", "Ops", "a b", "../x", "x" * 41])
def test_names_are_lower_case_words(name: str) -> None:
    with pytest.raises(ValidationError):
        a_config(**{name: ALL["files"]})


def test_the_number_of_deliveries_is_limited() -> None:
    with pytest.raises(ValidationError, match="at most 10"):
        a_config(**{f"d{number}": ALL["files"] for number in range(MAX_DELIVERIES + 1)})


@pytest.mark.parametrize(
    ("delivery", "env", "says"),
    [
        pytest.param(ALL["chat"], {}, "x.token_from: the environment has no BOT", id="no token"),
        pytest.param(ALL["hook"], {"HOOK": HOOK}, "x.secret_from: the environment has no S", id="no secret"),
        pytest.param(ALL["hook"], {**ENV, "S": "short"}, "S has fewer than 24 bytes", id="a short secret"),
        pytest.param(
            ALL["team"],
            {"HOOK": "http://hooks.test/t0ken"},
            "x.url_from: has to begin with https://",
            id="without encryption",
        ),
        pytest.param(ALL["team"], {"HOOK": "file:///etc/t0ken"}, "has to begin with https://", id="no address"),
        pytest.param(
            {**ALL["boss"], "security": "none"},
            ENV,
            "x.security: a password does not go",
            id="a password without encryption",
        ),
    ],
)
def test_a_missing_environment_variable_is_reported_before_a_worker_starts(
    tmp_path: Path, delivery: dict[str, Any], env: dict[str, str], says: str
) -> None:
    config = a_config(x=delivery)
    with pytest.raises(ValueError, match=r"goals\.deliveries") as refused:
        configured_parts(config, env, tmp_path, knows_attributes=False)
    assert says in str(refused.value)
    assert "t0ken" not in str(refused.value)
    problems = worker_report(config, tmp_path, env)["problems"]
    assert [says in each["problem"] for each in problems if each["place"] == "goals"] == [True]


async def test_a_run_records_names_and_kinds_and_never_addresses(tmp_path: Path) -> None:
    parts = configured_parts(a_config(**ALL), ENV, tmp_path, knows_attributes=False)
    recorded = (await parts.agents.setup(PrepareRequest())).model_dump(
        mode="json", include={"deliveries"}, exclude_unset=True
    )
    reported = recorded["deliveries"]
    assert reported[:2] == [{"name": "files", "kind": "file", "default": True}, {"name": "hook", "kind": "webhook"}]
    assert set(parts.deliveries) == {each["name"] for each in reported} == set(ALL)
    secrets = parts.secrets.redact(" ".join((SECRET, TOKEN, HOOK, "planted-mail-password")))
    assert secrets == " ".join(["[redacted]"] * 4)
    assert [word for word in ("t0ken", TOKEN, SECRET, "planted") if word in repr(parts.deliveries)] == []


async def test_a_worker_without_channels_records_none(tmp_path: Path) -> None:
    parts = configured_parts(OrgaConfig(), {}, tmp_path, knows_attributes=False)
    setup = await parts.agents.setup(PrepareRequest())
    assert "deliveries" not in setup.model_dump(exclude_unset=True)
