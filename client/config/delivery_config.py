"""`[goals.deliveries.NAME]`: where the answers of goals may go. Secrets come from the environment, by name."""

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from orga.workflows.types.goals.deliveries import GOAL_ID, DeliveryKind
from orga.workflows.types.mcp import Variable
from orga.workflows.types.record import Border

Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,190}$")]


class _Keys(NamedTuple):
    """What a kind needs, and what it may have beside that."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


_KEYS: Mapping[DeliveryKind, _Keys] = {
    "file": _Keys(("path",)),
    "memory": _Keys(()),
    "webhook": _Keys(("secret_from",), ("url", "url_from", "allow_http")),
    "telegram": _Keys(("token_from", "chat_id"), ("url", "allow_http")),
    "discord": _Keys(("url_from",), ("allow_http",)),
    "slack": _Keys(("url_from",), ("allow_http",)),
    "email": _Keys(("host", "sender", "to"), ("port", "security", "username", "password_from")),
}


class DeliveryConfig(Border):
    """One channel; which keys it has its kind says."""

    kind: DeliveryKind
    """Which keys the channel has, and how it is reached."""
    default: bool = False
    """Whether it gets the answers of goals that name no delivery."""
    path: str | None = Field(default=None, min_length=1, max_length=1_000)
    """`file`: below the root of the file tools, with `{goal_id}` in it."""
    url: str | None = Field(default=None, pattern=r"^https?://[^/\s]+", max_length=2_000)
    """`webhook`: its address. `telegram`: the server of the Bot API; null: `https://api.telegram.org`."""
    url_from: Variable | None = None
    """The variable that holds an address which is a secret itself: `webhook`, `discord`, `slack`."""
    allow_http: bool = False
    """Let answers go through a network in the clear."""
    secret_from: Variable | None = None
    """`webhook`: the variable that holds what signs, as for `[notify]`."""
    token_from: Variable | None = None
    """`telegram`: the variable that holds the bot's token."""
    chat_id: int | str | None = None
    """`telegram`: the chat's number, or `@name` of a channel."""
    host: str | None = Field(default=None, pattern=r"^[A-Za-z0-9.:-]{1,253}$")
    """`email`: the mail server."""
    port: int | None = Field(default=None, ge=1, le=65_535)
    """Null: 587, of `tls` 465, of `none` 25."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """`email`: how the connection is kept private."""
    username: str | None = Field(default=None, min_length=1, max_length=300)
    """`email`: who logs in; with `password_from`."""
    password_from: Variable | None = None
    """The variable that holds the password."""
    sender: Address | None = None
    """`email`: the sender's address."""
    to: tuple[Address, ...] = Field(default=(), max_length=50)
    """`email`: the addresses that get it."""

    @model_validator(mode="after")
    def _has_the_keys_of_its_kind(self) -> "DeliveryConfig":
        keys, given = _KEYS[self.kind], self.model_fields_set - {"kind", "default"}
        if missing := [key for key in keys.needed if not getattr(self, key)]:
            raise ValueError(f'kind "{self.kind}" needs {", ".join(missing)}')
        if extra := sorted(given - {*keys.needed, *keys.optional}):
            allowed = ", ".join((*keys.needed, *keys.optional))
            raise ValueError(f'{", ".join(extra)}: not of kind "{self.kind}"; it has {allowed}')
        if self.kind == "webhook" and (self.url is None) == (self.url_from is None):
            raise ValueError('kind "webhook" needs either a url or url_from')
        if self.kind == "email" and (self.username is None) != (self.password_from is None):
            raise ValueError("username and password_from go together")
        return self

    @model_validator(mode="after")
    def _names_each_goal(self) -> "DeliveryConfig":
        if self.path is None:
            return self
        rest = self.path.replace(GOAL_ID, "")
        if GOAL_ID not in self.path or "{" in rest or "}" in rest:
            raise ValueError(f"path: needs {GOAL_ID} and no other braces, or goals would replace each other's answers")
        if self.path.startswith("/") or ".." in self.path.split("/"):
            raise ValueError("path: has to lie below the root of the file tools, as answers/{goal_id}.md does")
        return self

    @property
    def variables(self) -> set[str]:
        """The variables that hold its secrets."""
        named = (self.url_from, self.secret_from, self.token_from, self.password_from)
        return {variable for variable in named if variable}
