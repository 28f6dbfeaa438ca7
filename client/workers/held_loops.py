"""Records of blocked event loops in this machine's workers, kept for `orga doctor` while the worker lives."""

import os
from contextlib import suppress
from datetime import UTC, datetime

from orga.client.server.endpoint import ServerUnavailable
from orga.client.server.home import UnreadableTable, read_table, server_home, write_table
from orga.client.server.pollers import MARK, may_live, own_identity


def remember_blocked_loop(held: object) -> None:
    """Record what blocked this process. If nothing can be written, its log and the metric still show it."""
    with suppress(OSError, ServerUnavailable, UnreadableTable):
        there = {
            identity: text for identity, text in read_table(server_home().blocked_loops).items() if may_live(identity)
        }
        text = f"{held}, until {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        write_table(server_home().blocked_loops, there | {own_identity(os.getpid()): text})


def longest_block_text(identity: str) -> str:
    """Return the longest block of a worker's event loop as a text, or "" if none is recorded."""
    try:
        return read_table(server_home().blocked_loops).get(identity.partition(MARK)[0], "")
    except UnreadableTable:
        return ""
