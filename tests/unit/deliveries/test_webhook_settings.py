"""Webhook settings: standard signatures, and a valid address and secret."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.adapters.webhook.post import SigningKey
from orga.client.config.delivery_settings import SECRET as VARIABLE
from orga.client.config.delivery_settings import notify_settings
from orga.client.config.sections import NotifyConfig
from tests.support.values.strategies import LAW
from tests.support.web.webhook_receiver import SECRET
from tests.support.web.webhooks import URL


@pytest.mark.parametrize(
    ("secret", "message_id", "at", "content", "expected"),
    [
        pytest.param(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1614265330,
            b'{"test": 2432232314}',
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            id="the example of the convention",
        ),
        pytest.param(
            "x" * 24,
            "msg_1",
            1,
            b"",
            "v1,7t5hboPvCECfgaCsglBEXRJgyBC3ISkBkxfS8H9snMQ=",
            id="a text secret and an empty body",
        ),
    ],
)
def test_signatures_follow_the_convention(secret: str, message_id: str, at: int, content: bytes, expected: str) -> None:
    assert SigningKey.from_secret(secret).headers(message_id, at, content) == {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": expected,
    }


@LAW
@given(st.binary(max_size=200), st.integers(0, 2**31), st.sampled_from(["id", "time", "body", "secret"]))
def test_any_change_invalidates_the_signature(content: bytes, at: int, changed: str) -> None:
    signed = SigningKey.from_secret(SECRET).headers("msg_1", at, content)["webhook-signature"]
    other = SigningKey.from_secret(SECRET + "x" * (changed == "secret")).headers(
        "msg_2" if changed == "id" else "msg_1",
        at + (changed == "time"),
        content + b"x" * (changed == "body"),
    )
    assert other["webhook-signature"] != signed


@pytest.mark.parametrize(
    ("config", "env", "says"),
    [
        pytest.param({"url": URL}, {}, "notify.url is set, but not ORGA_NOTIFY_SECRET", id="no secret"),
        pytest.param({"url": URL}, {VARIABLE: " "}, "but not ORGA_NOTIFY_SECRET", id="a blank secret"),
        pytest.param({"url": URL}, {VARIABLE: "short"}, "has fewer than 24 bytes; set it to", id="a short secret"),
        pytest.param({"url": URL}, {VARIABLE: "whsec_%%%%"}, "is not base64 after whsec_", id="no base64"),
        pytest.param(
            {"url": "http://hooks.test/x"}, {VARIABLE: SECRET}, "has to begin with https://", id="in the clear"
        ),
    ],
)
def test_unusable_settings_are_refused_with_the_remedy(config: dict[str, Any], env: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=r"notify|NOTIFY") as refused:
        notify_settings(NotifyConfig(**config), env)
    assert says in str(refused.value)
    assert "t0ken" not in str(refused.value)


@pytest.mark.parametrize(
    ("config", "is_told"),
    [
        pytest.param({}, False, id="nothing is configured"),
        pytest.param({"url": URL}, True, id="https"),
        pytest.param({"url": "http://127.0.0.1:8000/x"}, True, id="this machine"),
        pytest.param({"url": "http://hooks.test/x", "allow_http": True}, True, id="without encryption on request"),
    ],
)
def test_notifications_are_enabled_by_an_address(config: dict[str, Any], is_told: bool) -> None:
    assert (notify_settings(NotifyConfig(**config), {VARIABLE: SECRET}) is not None) is is_told


def test_settings_do_not_show_their_secrets() -> None:
    shown = repr(notify_settings(NotifyConfig(url=URL), {VARIABLE: SECRET}))
    assert (SECRET in shown, URL in shown) == (False, False)
