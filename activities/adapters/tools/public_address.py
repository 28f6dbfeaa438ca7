"""Which addresses a model may reach: public unicast, whatever they are wrapped in."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_NOT_PUBLIC_V4 = (
    IPv4Network("192.0.0.0/24"),  # protocol assignments; this Python counts parts of it as global
    IPv4Network("192.88.99.0/24"),  # 6to4 relays
    IPv4Network("168.63.129.16/32"),  # Azure's host services, on a public address
)
_NOT_PUBLIC_V6 = (
    IPv6Network("2001::/23"),  # Teredo and other assignments
    IPv6Network("2001:db8::/32"),
    IPv6Network("2002::/16"),  # 6to4
    IPv6Network("3fff::/20"),
)
_ISATAP = (0x5EFE, 0x0200_5EFE)  # the middle of an interface id that stands for an IPv4 address of the same site


def is_public(address: str) -> bool:
    """Whether a literal address is public; private, shared, link-local, metadata and tunnelled ones are not."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address):
        inner = _embedded(parsed)
        return _is_public_v6(parsed) if inner is None else _is_public_v4(inner)
    return _is_public_v4(parsed)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else None


def _is_public_v4(address: IPv4Address) -> bool:
    special = address.is_multicast or address.is_reserved or any(address in network for network in _NOT_PUBLIC_V4)
    return address.is_global and not special


def _is_public_v6(address: IPv6Address) -> bool:
    is_tunnel = int(address) >> 32 & 0xFFFF_FFFF in _ISATAP
    is_excluded = is_tunnel or any(address in network for network in _NOT_PUBLIC_V6)
    return address in _GLOBAL_UNICAST and address.is_global and not is_excluded
