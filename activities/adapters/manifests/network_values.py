"""Addresses, networks, host names, targets and URLs, in one spelling each."""

import ipaddress
import re
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from orga.activities.adapters.http import URL, InvalidURL, has_dot_segments

_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NUMBER = re.compile(r"\d+|0[xX][0-9a-fA-F]*")
_IN_NO_HOST = re.compile(r"[^\x21-\x7e]|[%\\]")


def ip_address(value: str) -> str:
    """Return an IPv4 or IPv6 address; one with leading zeros or a zone is none."""
    if "%" in value:
        raise ValueError("an address with a zone is refused")
    return str(_parsed(ipaddress.ip_address, value, "is no IP address; write 192.0.2.1 or 2001:db8::1"))


def cidr(value: str) -> str:
    """Return a network; bits beyond its prefix are an error."""
    if "/" not in value or "%" in value:
        raise ValueError("is no network; write 10.0.0.0/8")
    return str(_parsed(ipaddress.ip_network, value, "is no network whose host bits are 0; write 10.0.0.0/8"))


def hostname(value: str) -> str:
    """Return a host name in ASCII and lower case; no wildcard, and nothing that a resolver reads as a number."""
    labels = value.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("is no host name; write it as in www.example.org, letters beyond ASCII as xn--")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError("is a number, no host name")
    return value.lower()


def scope_target(value: str, scope: Iterable[str]) -> str:
    """Return an address, a network or a host name that lies in the scope, if there is one."""
    target = _target(value)
    allowed = tuple(scope)
    if allowed and not any(_is_within(target, each) for each in allowed):
        raise ValueError(f"is out of scope; in scope: {', '.join(allowed)}")
    return target


def scope_entry(entry: str) -> str:
    """Return an entry of a scope, which may be a wildcard for all names below one.

    Raises:
        ValueError: It is none.
    """
    return _target(entry.removeprefix("*.")) if entry.startswith("*.") else _target(entry)


def url(value: str, schemes: Iterable[str] = ()) -> str:
    """Return an absolute URL in its normal spelling: the one that is checked is the one that is used."""
    allowed = tuple(schemes) or ("http", "https")
    try:
        netloc, parsed = urlsplit(value).netloc, URL(value)
    except (ValueError, InvalidURL) as error:
        raise ValueError(f"is no URL: {error}") from None
    if parsed.scheme not in allowed:
        raise ValueError(f"its scheme is {parsed.scheme or 'missing'}; write one with {' or '.join(allowed)}")
    if parsed.userinfo or "@" in netloc:
        raise ValueError("credentials in a URL are refused; leave out user and password")
    if not parsed.host or _IN_NO_HOST.search(netloc) or "\\" in value:
        raise ValueError("has no host, or an encoded one; write it as in https://www.example.org/")
    if has_dot_segments(value):
        raise ValueError("its path has `.` or `..`; write the one it leads to")
    return str(parsed)


def _target(value: str) -> str:
    for read in (ip_address, cidr, hostname):
        try:
            return read(value)
        except ValueError:
            continue
    raise ValueError("is no IP address, network or host name; wildcards are refused")


def _is_within(target: str, entry: str) -> bool:
    network, wanted = _network(scope_entry(entry)), _network(target)
    if network is None or wanted is None:
        name = scope_entry(entry)
        is_name = network is None and wanted is None
        return is_name and (target.endswith(f".{name}") if entry.startswith("*.") else target == name)
    return isinstance(wanted, type(network)) and wanted.subnet_of(network)  # pyright: ignore[reportArgumentType]


def _network(value: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(value)
    except ValueError:
        return None


def _parsed(read: Callable[[str], object], value: str, problem: str) -> object:
    try:
        return read(value)
    except ValueError:
        raise ValueError(problem) from None
