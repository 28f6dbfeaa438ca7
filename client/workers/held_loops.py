"""What the watchdogs of this machine's workers saw: kept for `orga doctor`, as long as the worker lives."""

import os
from contextlib import suppress
from datetime import UTC, datetime

from orga.client.server.endpoint import ServerUnavailable
from orga.client.server.home import UnreadableTable, read_table, server_home, write_table
from orga.client.server.pollers import MARK, may_live, own_identity


def remember_blocked_loop(held: object) -> None:
    """Keep what held this process; where nothing can be kept, its log and the metric still say it."""
    with suppress(OSError, ServerUnavailable, UnreadableTable):
        there = {identity: told for identity, told in read_table(server_home().holds).items() if may_live(identity)}
        told = f"{held}, until {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        write_table(server_home().holds, there | {own_identity(os.getpid()): told})


def longest_block_text(identity: str) -> str:
    """Return the longest time that a worker's event loop was held, empty where nobody has told."""
    try:
        return read_table(server_home().holds).get(identity.partition(MARK)[0], "")
    except UnreadableTable:
        return ""
