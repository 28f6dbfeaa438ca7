"""The address of the database, with a form without password that can be shown."""

from dataclasses import dataclass, field
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

CONNECT_S = 5
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class PostgresAddress:
    """An address with its password, and the form that people see instead."""

    conninfo: str = field(repr=False)
    password: str = field(repr=False)
    place: str
    """`postgresql://host:port/database`."""
    variable: str
    """The environment variable that contains it, for error messages."""


def parse_address(dsn: str, variable: str) -> PostgresAddress:
    """Return the address in a variable. TLS is required for a remote server unless the address sets it otherwise.

    Raises:
        ValueError: It is no address. The text repeats nothing of it.
    """
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error:
        raise ValueError(
            f"{variable} holds no address of a database; write it like postgresql://user:password@host/database"
        ) from None
    host, name = parts.get("host", ""), parts.get("dbname", parts.get("user", ""))
    is_local = all(each in _LOCAL_HOSTS or each.startswith(("/", "@")) for each in host.split(",") if each)
    added = {"connect_timeout": str(CONNECT_S), "application_name": "orga"}
    if not is_local:
        added["sslmode"] = "require"
    port = parts.get("port", "5432")
    return PostgresAddress(
        conninfo=make_conninfo("", **{**added, **parts}),
        password=parts.get("password", ""),
        place=f"postgresql://{quote(host, safe=',/:') or 'localhost'}:{quote(port, safe=',')}/{quote(name)}",
        variable=variable,
    )
