"""Search attributes that a command finds runs by: without them it would find none."""

from contextlib import suppress
from typing import Any

from temporalio.client import Client
from temporalio.common import SearchAttributeKey

from orga.client.cli.output import note
from orga.client.errors import OrgaError
from orga.client.server.search_attributes import SearchAttributesRefused, missing


async def require_attributes(client: Client, *needed: SearchAttributeKey[Any]) -> None:
    """Say what the server lacks.

    Raises:
        OrgaError: It lacks one that is needed.
    """
    lacking: list[str] = []
    with suppress(SearchAttributesRefused):  # who may not list them can still search
        lacking = await missing(client)
    if not lacking:
        return
    remedy = f"the server lacks the search attributes {', '.join(lacking)}; register them with: orga setup"
    if any(key.name in lacking for key in needed):
        raise OrgaError(remedy)
    note(remedy)
