"""The addresses that `fetch_url` may reach."""

import pytest

from orga.activities.adapters.tools.guarded_http import is_public


@pytest.mark.parametrize(
    "address",
    ["93.184.215.14", "1.1.1.1", "2606:4700:4700::1111", "::ffff:93.184.215.14", "64:ff9b::5db8:d70e"],
)
def test_a_public_address_is_allowed(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("127.0.0.1", id="loopback"),
        pytest.param("127.255.255.254", id="all of loopback"),
        pytest.param("0.0.0.0", id="this machine"),
        pytest.param("10.0.0.1", id="private 10"),
        pytest.param("172.16.0.1", id="private 172"),
        pytest.param("192.168.1.1", id="private 192"),
        pytest.param("100.64.0.1", id="shared by a carrier"),
        pytest.param("169.254.169.254", id="link-local, metadata"),
        pytest.param("168.63.129.16", id="host services of Azure"),
        pytest.param("192.0.0.192", id="metadata of Oracle"),
        pytest.param("192.0.2.1", id="documentation"),
        pytest.param("198.18.0.1", id="benchmarks"),
        pytest.param("192.88.99.1", id="6to4 relay"),
        pytest.param("224.0.1.1", id="multicast"),
        pytest.param("240.0.0.1", id="reserved"),
        pytest.param("255.255.255.255", id="broadcast"),
        pytest.param("::1", id="loopback, v6"),
        pytest.param("::", id="this machine, v6"),
        pytest.param("::ffff:10.0.0.1", id="private, mapped"),
        pytest.param("::ffff:7f00:1", id="loopback, mapped"),
        pytest.param("::127.0.0.1", id="loopback, v4-compatible"),
        pytest.param("64:ff9b::7f00:1", id="loopback through NAT64"),
        pytest.param("64:ff9b::a9fe:a9fe", id="metadata through NAT64"),
        pytest.param("64:ff9b:1::a00:1", id="local NAT64"),
        pytest.param("2002:7f00:1::", id="loopback through 6to4"),
        pytest.param("2001:0:a00:1::", id="Teredo"),
        pytest.param("fc00::1", id="private, v6"),
        pytest.param("fd00:ec2::254", id="metadata, v6"),
        pytest.param("fe80::1", id="link-local, v6"),
        pytest.param("fe80::1%eth0", id="link-local with a zone"),
        pytest.param("fec0::1", id="site-local"),
        pytest.param("ff02::1", id="multicast, v6"),
        pytest.param("2001:db8::1", id="documentation, v6"),
        pytest.param("3fff::1", id="documentation, newer"),
        pytest.param("5f00::1", id="segment routing"),
        pytest.param("not an address", id="no address"),
        pytest.param("", id="empty"),
    ],
)
def test_any_other_address_is_refused(address: str) -> None:
    assert not is_public(address)
