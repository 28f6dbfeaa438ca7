"""Whose knowledge it is, who asks, and whether it is trusted: the options that say so."""

from typing import Annotated, get_args

import typer

from orga.client.cli.exit_codes import UsageError
from orga.workflows.types.knowledge import Reader, ScopeLevel

Scope = Annotated[
    str | None,
    typer.Option(
        metavar="SCOPE",
        help="Who may recall it: user, agent, tenant or global; else what --user or --agent says, else tenant.",
        show_default=False,
    ),
]
User = Annotated[
    str | None, typer.Option(metavar="NAME", help="As runs name it in trusted_context.user.", show_default=False)
]
Tenant = Annotated[
    str | None, typer.Option(metavar="NAME", help="None: what belongs to no tenant.", show_default=False)
]
Agent = Annotated[str | None, typer.Option(metavar="NAME", help="As in \\[agents.NAME].", show_default=False)]

Untrusted = Annotated[
    bool, typer.Option("--untrusted", help="Written by somebody you do not trust: it taints runs that recall it.")
]
UNTRUSTED = "import"
"""The mark of what nobody here has written."""


def owned(scope: str | None, *, user: str | None, tenant: str | None, agent: str | None) -> tuple[ScopeLevel, Reader]:
    """Return a scope and its owner.

    Raises:
        UsageError: They do not go together.
    """
    level = _level(scope, user, agent)
    means = {"user": ("user", "tenant"), "agent": ("agent", "tenant"), "tenant": ("tenant",), "global": ()}[level]
    named = {"user": user, "agent": agent, "tenant": tenant}
    for name, value in named.items():
        if value is not None and name not in means:
            raise UsageError(f"--{name} says nothing of the scope {level}; leave it out, or choose another --scope")
    if level in named and level != "tenant" and not named[level]:
        raise UsageError(f"whose is it? --scope {level} needs --{level} NAME")
    return level, reader(user=user, tenant=tenant, agent=agent)


def reader(*, user: str | None, tenant: str | None, agent: str | None) -> Reader:
    """Return who asks."""
    return Reader(tenant=tenant or "", user=user or "", agent=agent or "")


def _level(scope: str | None, user: str | None, agent: str | None) -> ScopeLevel:
    if scope is None:
        if user is not None and agent is not None:
            raise UsageError("--user and --agent: choose --scope user or --scope agent")
        return "user" if user is not None else "agent" if agent is not None else "tenant"
    for level in get_args(ScopeLevel):
        if scope == level:
            return level
    raise UsageError(f"--scope {scope!r} is none of {', '.join(get_args(ScopeLevel))}")
