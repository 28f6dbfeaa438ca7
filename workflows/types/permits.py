"""Permits: what the gate has signed of a call, so that nothing carries out a call that the gate did not allow."""

import re

PERMIT_KEY = "ORGA_PERMIT_KEY"
"""The variable that holds the worker's keys, or names a file with them."""

NOT_PERMITTED = "NotPermitted"
"""Type of the failure of a call without a valid permit: nothing was run."""

MAC_CHARS = 22
"""128 bits as base64url."""

_AGAIN = re.compile(r"\.r\d+$")


def permit_text(signature: str, version: str, purpose: str, approver: str) -> str:
    """Return what a call brings along: the signature, then the terms that it covers and that the call itself lacks."""
    terms = "|".join((version, "" if purpose == "reply" else purpose, approver)).rstrip("|")
    return f"{signature}{terms}" if signature else ""


def place_of(activity_id: str) -> str:
    """Return the place of a call; one that a person has tried once more (`.r1`) stands where it stood."""
    return _AGAIN.sub("", activity_id)
