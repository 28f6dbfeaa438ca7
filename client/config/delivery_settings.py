"""Turns `[notify]` and `[goals.deliveries]` into a webhook and channels, with secrets from the environment."""

from collections.abc import Callable, Mapping

from orga.activities.adapters.deliveries.targets import (
    EmailDelivery,
    FileDelivery,
    MailSettings,
    MemoryDelivery,
    PostedDelivery,
    discord_form,
    slack_form,
    telegram_form,
    webhook_form,
)
from orga.activities.adapters.http import is_loopback
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.adapters.webhook.post import SigningKey, WebhookPost, WebhookSettings
from orga.activities.deliver import DeliveryChannel
from orga.activities.knowledge.ports import KnowledgeStore
from orga.client.config.known_input import Environment
from orga.client.config.sections import DeliveryConfig, NotifyConfig
from orga.workflows.types.goals.deliveries import Channel, DeliveryKind

SECRET = "ORGA_NOTIFY_SECRET"
"""The variable with the secret that signs what `[notify]` sends."""
ADDRESS = "ORGA_NOTIFY__URL"
"""The variable that sets `notify.url`, for an address that is itself a secret."""

REMEDY = "set it to the secret that the receiver checks signatures with, such as the output of: openssl rand -hex 32"

TELEGRAM = "https://api.telegram.org"
PORTS = {"starttls": 587, "tls": 465, "none": 25}
"""Default ports of a mail server, by `security`."""


def notify_settings(config: NotifyConfig, env: Environment) -> WebhookSettings | None:
    """Return the settings, or None without an address. Raise ValueError if the secret or the encryption is missing."""
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


def checked_address(key: str, url: str, *, allow_http: bool) -> str:
    """Return the address. Raise ValueError if it is http://, except on this machine or with `allow_http`.

    The error does not contain the address, which may be secret.
    """
    may_be_http = allow_http or is_loopback(url)
    if url.startswith("https://") or (may_be_http and url.startswith("http://")):
        return url
    table = key.rpartition(".")[0]
    raise ValueError(f"{key}: has to begin with https://; or set {table}.allow_http = true to send it unencrypted")


def run_channels(deliveries: Mapping[str, DeliveryConfig]) -> tuple[Channel, ...]:
    """Return the channels as runs see them: names and kinds, but no addresses."""
    return tuple(
        # a setup records only fields that are set, so `default` is set only if it is true
        Channel(name=name, kind=config.kind, **({"default": True} if config.default else {}))
        for name, config in deliveries.items()
    )


def delivery_channels(
    deliveries: Mapping[str, DeliveryConfig],
    root: Callable[[], FileRoot],
    store: Callable[[], KnowledgeStore],
    env: Environment,
) -> dict[str, DeliveryChannel]:
    """Return the channels by name. `root` is called only for a file channel, `store` only for a memory channel.

    Raise ValueError if a variable is not set, or answers would be sent unencrypted. The error has no variable's value.
    `DeliveryConfig` has checked that each kind has the keys it needs.
    """

    def channel(name: str, config: DeliveryConfig) -> DeliveryChannel:
        match config.kind:
            case "file":
                return FileDelivery(root(), config.path or "")
            case "memory":
                return MemoryDelivery(store())
            case kind:
                return _SENDING_CHANNELS[kind](f"goals.deliveries.{name}", config, env)

    return {name: channel(name, config) for name, config in deliveries.items()}


def _webhook(section: str, config: DeliveryConfig, env: Environment) -> DeliveryChannel:
    secret = _variable_value(f"{section}.secret_from", config.secret_from, env)
    try:
        key = SigningKey.from_secret(secret)
    except ValueError as error:
        raise ValueError(f"{section}.secret_from: {config.secret_from} {error}; {REMEDY}") from None
    return PostedDelivery(WebhookPost(_channel_url(section, config, env), "the webhook"), webhook_form, key)


def _telegram(section: str, config: DeliveryConfig, env: Environment) -> DeliveryChannel:
    token = _variable_value(f"{section}.token_from", config.token_from, env)
    server = checked_address(f"{section}.url", (config.url or TELEGRAM).rstrip("/"), allow_http=config.allow_http)
    url = f"{server}/bot{token}/sendMessage"
    return PostedDelivery(WebhookPost(url, "Telegram"), telegram_form(config.chat_id or ""))


def _email(section: str, config: DeliveryConfig, env: Environment) -> DeliveryChannel:
    host, security, user = config.host or "", config.security, config.username
    password = None
    if user is not None:
        password = _variable_value(f"{section}.password_from", config.password_from, env)
        if security == "none" and not is_loopback(f"smtp://{host}"):
            raise ValueError(
                f'{section}.security: a password does not go through a network unencrypted; use "starttls"'
            )
    port = config.port or PORTS[security]
    return EmailDelivery(MailSettings(host, port, security, config.sender or "", config.to, user, password))


_SENDING_CHANNELS: Mapping[DeliveryKind, Callable[[str, DeliveryConfig, Environment], DeliveryChannel]] = {
    "webhook": _webhook,
    "telegram": _telegram,
    "discord": lambda section, config, env: PostedDelivery(
        WebhookPost(_channel_url(section, config, env), "Discord"), discord_form
    ),
    "slack": lambda section, config, env: PostedDelivery(
        WebhookPost(_channel_url(section, config, env), "Slack"), slack_form
    ),
    "email": _email,
}


def _channel_url(section: str, config: DeliveryConfig, env: Environment) -> str:
    if config.url is not None:
        return checked_address(f"{section}.url", config.url, allow_http=config.allow_http)
    url = _variable_value(f"{section}.url_from", config.url_from, env)
    return checked_address(f"{section}.url_from", url, allow_http=config.allow_http)


def _variable_value(key: str, variable: str | None, env: Environment) -> str:
    if variable and (value := env.get(variable, "").strip()):
        return value
    raise ValueError(f"{key}: the environment has no {variable}")
