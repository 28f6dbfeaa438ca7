"""Turns `[notify]` into the settings of a webhook."""

from collections.abc import Mapping

from orga.activities.adapters.http import is_loopback
from orga.activities.adapters.webhook.sender import WebhookSettings
from orga.activities.adapters.webhook.signature import SigningKey
from orga.client.config.sections import NotifyConfig

SECRET = "ORGA_NOTIFY_SECRET"
ADDRESS = "ORGA_NOTIFY__URL"
"""The variable that sets `notify.url`, for an address that is itself a secret."""

REMEDY = "set it to what the receiver checks signatures with, say the output of: openssl rand -hex 32"


def notify_settings(config: NotifyConfig, env: Mapping[str, str]) -> WebhookSettings | None:
    """Return the settings, or None if `[notify]` names no address.

    Raises:
        ValueError: There is no usable secret, or messages would be sent unencrypted.
    """
    if config.url is None:
        return None
    url = checked_address("notify.url", config.url, allow_http=config.allow_http)
    secret = env.get(SECRET, "").strip()
    if not secret:
        raise ValueError(f"notify.url is set, but not {SECRET} in the environment; {REMEDY}")
    try:
        return WebhookSettings(url, SigningKey.from_secret(secret), config.format)
    except ValueError as error:
        raise ValueError(f"{SECRET} {error}; {REMEDY}") from None


def checked_address(place: str, url: str, *, allow_http: bool) -> str:
    """Return the address if nobody else on the network can read what is sent there, or if `allow_http` permits it.

    Raises:
        ValueError: Neither holds. The text names the key, but not the address.
    """
    if url.startswith("https://") or (url.startswith("http://") and (is_loopback(url) or allow_http)):
        return url
    table = place.rpartition(".")[0]
    raise ValueError(f"{place}: has to begin with https://; or set {table}.allow_http = true to send it unencrypted")
