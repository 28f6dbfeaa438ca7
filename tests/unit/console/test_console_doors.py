"""The doors of the console: who gets in, and who may do what. No server is needed: each answer is given at the door."""

import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from temporalio.client import Client

from orga.client.connect import Connection
from orga.client.console.app import ROUTES, console_app
from orga.client.console.doors import (
    ROLES,
    Doors,
    Limits,
    Proxy,
    Role,
    TokenFile,
    Visitor,
    cookie_name,
    owner_token,
    roles_up_to,
)
from orga.client.console.routes import Console
from orga.client.errors import OrgaError
from orga.client.server.endpoint import Endpoint
from orga.workflows.types.workplace import Workplace

HOST = "127.0.0.1:8642"
TOKEN = "the-token-of-ann"
CSRF = {"X-Orga-Console": "1"}
BEARER = {"Authorization": f"Bearer {TOKEN}"}
WRITE = {**CSRF, **BEARER}
EVE = {"X-Forwarded-User": "eve"}
MARKDOWN = {"texts": ["a"]}
PLACE = Workplace(folder="/", root="/", mark="", digest="")


class NoServer(Client):
    """The Temporal client of a console that answers at the door: any use of it fails the test."""

    def __init__(self) -> None:
        """Connect to nothing."""


def browser(*, cookies: Mapping[str, str] | None = None, **doors: Any) -> TestClient:
    doors.setdefault("token", TOKEN)
    connection = Connection(NoServer(), Endpoint("nowhere"), PLACE, "orga", "orga")
    app = console_app(Console(connection, Doors(frozenset({HOST}), "ann", **doors)))
    return TestClient(
        app, base_url=f"http://{HOST}", cookies=dict(cookies or {}), follow_redirects=False, client=("10.0.0.7", 50_000)
    )


REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "an address of another name": ({"headers": {**BEARER, "Host": "evil.example:8642"}}, 403),
    "an address without the port": ({"headers": {**BEARER, "Host": "127.0.0.1"}}, 403),
    "a page of another origin": ({"headers": {**BEARER, "Origin": "http://evil.example"}}, 403),
    "a page of this host over another scheme": ({"headers": {**BEARER, "Origin": f"https://{HOST}"}}, 403),
    "an image or a fetch of a page on another port": (
        {"headers": {**BEARER, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}},
        403,
    ),
    "a page of no origin": ({"headers": {**BEARER, "Origin": "null"}}, 403),
    "nobody": ({}, 401),
    "a wrong token": ({"headers": {"Authorization": "Bearer other"}}, 401),
    "an empty token": ({"headers": {"Authorization": "Bearer "}}, 401),
    "a wrong token in the address": ({"params": {"token": "other"}}, 401),
    "a name that no proxy vouches for": (
        {"headers": {"X-Forwarded-User": "eve", "X-Forwarded-Groups": "orga:admin"}},
        401,
    ),
    "a write without the header": ({"method": "POST", "headers": BEARER, "json": MARKDOWN}, 403),
    "a write that is no JSON": (
        {"method": "POST", "headers": {**WRITE, "Content-Type": "text/plain"}, "content": "{}"},
        415,
    ),
    "a form": ({"method": "POST", "headers": WRITE, "data": {"a": "b"}}, 415),
    "half a character": (
        {
            "method": "POST",
            "headers": {**WRITE, "Content-Type": "application/json"},
            "content": b'{"texts": ["\\ud800"]}',
        },
        422,
    ),
    "a long body": ({"method": "POST", "headers": WRITE, "json": {"texts": ["a" * 1_000_001]}}, 413),
}


@pytest.mark.parametrize(("request_", "status"), REFUSED.values(), ids=REFUSED)
def test_the_door_refuses(request_: dict[str, Any], status: int) -> None:
    method = request_.pop("method", "GET") if "method" in (request_ := dict(request_)) else "GET"
    path = "/api/v1/me" if method == "GET" else "/api/v1/markdown"
    answer = browser().request(method, path, **request_)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json()["status"] == status


def test_a_long_body_without_a_length_is_refused() -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"texts": ["'
        for _ in range(20):
            yield b"a" * 100_000
        yield b'"]}'

    headers = {**WRITE, "Content-Type": "application/json"}
    answer = browser().post("/api/v1/markdown", headers=headers, content=chunks())
    assert answer.status_code == 413


def test_the_token_of_the_address_becomes_a_cookie_and_leaves_the_address() -> None:
    there = browser()
    entered = there.get("/", params={"token": TOKEN, "kind": "agent"})
    assert (entered.status_code, entered.headers["location"]) == (303, "/?kind=agent")
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert there.get("/api/v1/me").json()["name"] == "ann"
    elsewhere = there.get(f"http://{HOST}//evil.example/", params={"token": TOKEN})
    assert elsewhere.headers["location"] == "/evil.example/"


def test_a_page_of_this_user_leads_to_the_console_by_a_page_of_the_console() -> None:
    there = browser()
    entered = there.get("/", params={"token": TOKEN, "text": '"><b>'}, headers={"Sec-Fetch-Site": "cross-site"})
    assert (entered.status_code, "set-cookie" in entered.headers) == (200, False)
    assert "<b>" not in entered.text
    assert "default-src 'none'" in entered.headers["content-security-policy"]
    again = re.findall(r'content="0; url=(.*?)"', entered.text)[0]
    assert again.startswith("/?token=")
    abroad = there.get(
        f"http://{HOST}//evil.example/", params={"token": TOKEN}, headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert "url=/evil.example/?token=" in abroad.text
    there.get(html.unescape(again), headers={"Sec-Fetch-Site": "same-origin"})
    assert there.get("/api/v1/me").json()["name"] == "ann"


def test_a_page_cannot_make_a_browser_somebody_else(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    theirs = {"token": tokens.add("mallory", "viewer", ())}
    there = browser(tokens=tokens, cookies={cookie_name(HOST): TOKEN})
    for site, status in (("cross-site", 200), ("same-origin", 409), ("none", 303)):
        entered = there.get("/", params=theirs, headers={"Sec-Fetch-Site": site})
        assert (entered.status_code, "set-cookie" in entered.headers) == (status, site == "none")


def test_no_page_of_another_name_of_the_domain_can_set_the_cookie() -> None:
    there = browser(scheme="https")
    set_cookie = there.get("/", params={"token": TOKEN}).headers["set-cookie"]
    name, *_ = set_cookie.partition("=")
    assert name == cookie_name(HOST, "https")
    assert name.startswith("__Host-")
    assert {"Secure", "Path=/"} <= set(set_cookie.split("; ")[1:])
    assert "Domain" not in set_cookie
    set_by_another = browser(scheme="https", cookies={cookie_name(HOST): TOKEN})
    assert set_by_another.get("/api/v1/me").status_code == 401
    assert browser(scheme="https", cookies={name: TOKEN}).get("/api/v1/me").status_code == 200


def test_every_answer_has_the_security_headers() -> None:
    there = browser(cookies={cookie_name(HOST): TOKEN})
    for path, headers in (("/api/v1/me", {}), ("/nowhere", {}), ("/api/v1/me", {"Host": "evil.example"})):
        answer = there.get(path, headers=headers)
        assert "default-src 'none'" in answer.headers["content-security-policy"], path
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_a_defect_shows_nothing_of_itself() -> None:
    answer = browser(cookies={cookie_name(HOST): TOKEN}).get("/api/v1/runs")
    assert answer.status_code == 500
    assert set(answer.json()) == {"type", "title", "status", "detail"}
    assert "NoServer" not in answer.text
    assert "Traceback" not in answer.text
    assert "content-security-policy" in answer.headers


NEEDS: dict[Role, int] = {"viewer": 403, "operator": 422, "approver": 422, "admin": 422}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_the_rights_of_those_before_it(role: Role, tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    token = file.add("bob", role, [])
    there = browser(tokens=file)
    headers = {**CSRF, "Authorization": f"Bearer {token}"}
    assert there.get("/api/v1/me", headers=headers).json()["roles"] == list(roles_up_to(role))
    assert there.post("/api/v1/runs", json={}, headers=headers).status_code == NEEDS[role]


def test_a_read_only_console_refuses_the_writes_of_an_admin() -> None:
    answer = browser(read_only=True).post("/api/v1/runs", json={}, headers=WRITE)
    assert answer.status_code == 403
    assert "read-only" in answer.json()["detail"]


def test_every_route_names_a_role() -> None:
    assert all(route.role in ROLES for route in ROUTES)
    assert {route.role for route in ROUTES if route.method != "GET" and route.is_write} <= set(ROLES[1:])


def test_a_name_has_so_many_writes_and_starts_a_minute() -> None:
    there = browser(limits=Limits(writes=5, starts=3))
    codes = [there.post("/api/v1/runs", json={}, headers=WRITE).status_code for _ in range(4)]
    assert codes == [422, 422, 422, 429]
    limited = there.post("/api/v1/runs", json={}, headers=WRITE)
    assert (limited.status_code, int(limited.headers["retry-after"]) > 50) == (429, True)
    assert "writes" in there.post("/api/v1/runs", json={}, headers=WRITE).json()["detail"]


PROXIED: dict[str, tuple[str, dict[str, str], dict[str, Any] | None]] = {
    "from the proxy": (
        "10.0.0.7",
        EVE | {"X-Forwarded-Groups": "staff, orga:operator"},
        {"roles": ["viewer", "operator"], "tenants": None},
    ),
    "from its network, of a tenant": (
        "10.0.0.0/24",
        EVE | {"X-Forwarded-Groups": "orga:viewer,orga:tenant:north"},
        {"roles": ["viewer"], "tenants": ["north"]},
    ),
    "without a name": ("10.0.0.7", {"X-Forwarded-Groups": "orga:admin"}, None),
    "from elsewhere": ("10.0.0.8", EVE | {"X-Forwarded-Groups": "orga:admin"}, None),
}


@pytest.mark.parametrize(("address", "headers", "expected"), PROXIED.values(), ids=PROXIED)
def test_a_proxy_names_the_visitor(address: str, headers: dict[str, str], expected: dict[str, Any] | None) -> None:
    answer = browser(proxy=Proxy(address)).get("/api/v1/me", headers=headers)
    if expected is None:
        assert answer.status_code == 401
    else:
        assert answer.json() | expected == answer.json()
        assert answer.json()["name"] == "eve"


def test_a_name_of_a_proxy_without_a_role_may_do_nothing() -> None:
    answer = browser(proxy=Proxy("10.0.0.7")).get("/api/v1/me", headers=EVE)
    assert answer.status_code == 403


def test_a_token_is_valid_until_it_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    file = TokenFile(path)
    first, second = file.add("bob", "viewer", ["north"]), file.add("eve", "admin", [])
    assert first not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert file.visitor(first) == Visitor("bob", ("viewer",), frozenset({"north"}))
    path.write_text('{"tokens": []}')
    assert file.visitor(second) is None
    path.write_text("no JSON at all")
    assert file.visitor(first) is None


BAD_FILES = {
    "no JSON": ("{", 0o600, "is no JSON"),
    "an unknown role": ('{"tokens": [{"name": "a", "sha256": "' + "0" * 64 + '", "role": "king"}]}', 0o600, "role"),
    "others may read it": ("{}", 0o644, "chmod 600"),
}


@pytest.mark.parametrize(("text", "mode", "problem"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_of_tokens_is_refused(text: str, mode: int, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(OrgaError, match=problem):
        TokenFile(path)


def test_the_owners_token_outlives_the_console(tmp_path: Path) -> None:
    path = tmp_path / "console-token"
    first = owner_token(path)
    assert owner_token(path) == first
    assert path.stat().st_mode & 0o077 == 0
    path.chmod(0o644)
    assert owner_token(path) != first
