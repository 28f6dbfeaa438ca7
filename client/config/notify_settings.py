"""From `[notify]` to what a webhook needs."""

from collections.abc import Mapping

from orga.activities.adapters.http import is_loopback
from orga.activities.adapters.webhook.sender import WebhookSettings
from orga.activities.adapters.webhook.signature import SigningKey
from orga.client.config.sections import NotifyConfig

SECRET = "ORGA_NOTIFY_SECRET"
ADDRESS = "ORGA_NOTIFY__URL"
"""The setting as a variable: for an address that is a secret itself."""

REMEDY = "set it to what the receiver checks signatures with, say the output of: openssl rand -hex 32"


def notify_settings(config: NotifyConfig, env: Mapping[str, str]) -> WebhookSettings | None:
    """Return the settings, or None where nobody is to be told.

    Raises:
        ValueError: There is no secret that can be used, or messages would be sent in the clear.
    """
    if config.url is None:
        return None
    url = checked_address("notify.url", config.url, allow_http=config.allow_http)
    secret = env.get(SECRET, "").strip()
    if not secret:
        raise ValueError(f"notify.url is set, but not {SECRET} in the environment; {REMEDY}")
    try:
        return WebhookSettings(url, SigningKey.of(secret), config.format)
    except ValueError as error:
        raise ValueError(f"{SECRET} {error}; {REMEDY}") from None


def checked_address(place: str, url: str, *, allow_http: bool) -> str:
    """Return an address that nobody on the way can read along with, or that is meant to be in the clear.

    Raises:
        ValueError: It is neither; the text names the key, and holds nothing of the address.
    """
    if url.startswith("https://") or (url.startswith("http://") and (is_loopback(url) or allow_http)):
        return url
    table = place.rpartition(".")[0]
    raise ValueError(f"{place}: has to begin with https://; or set {table}.allow_http = true, and all is readable")
