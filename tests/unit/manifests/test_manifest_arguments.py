"""Types of arguments: which values are accepted, in which normal form, and which are refused at every boundary."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.adapters.manifests.argument_types import (
    PathContext,
    checked_values,
    is_like_flag,
    parameters_schema,
)
from orga.activities.adapters.manifests.manifest import Argument
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.ports import ToolError
from tests.support.tools.manifests import read


@pytest.fixture(name="root")
def a_root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "a.md").write_text("a")
    (root / "in").symlink_to("docs")
    (root / "out").symlink_to(tmp_path)
    return root


@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        pytest.param('type = "string"', "a b; $(x) 'q' \"", "a b; $(x) 'q' \"", id="a text with special characters"),
        pytest.param('type = "string"', "", "", id="an empty text"),
        pytest.param('type = "string", min = 2, max = 3', "äöü", "äöü", id="the maximum length"),
        pytest.param('type = "string", multiline = true', "a\n\tb", "a\n\tb", id="lines if allowed"),
        pytest.param('type = "string", pattern = "a|b"', "b", "b", id="a pattern of alternatives"),
        pytest.param('type = "integer"', -3, -3, id="an integer"),
        pytest.param('type = "integer"', 2.0, 2, id="an integer written with a decimal point"),
        pytest.param('type = "integer", min = 1, max = 5', 5, 5, id="the largest integer"),
        pytest.param('type = "number", min = 0.5', 0.5, 0.5, id="the smallest number"),
        pytest.param('type = "boolean"', False, False, id="false"),
        pytest.param('type = "enum", allowed = ["a", "--b"]', "--b", "--b", id="an allowed word"),
        pytest.param('type = "port"', 1, 1, id="the first port"),
        pytest.param('type = "port"', 65_535, 65_535, id="the last port"),
        pytest.param(
            'type = "url"',
            "HTTPS://Example.ORG/a?b=1&c=2#d",
            "https://example.org/a?b=1&c=2#d",
            id="a URL with a query",
        ),
        pytest.param('type = "url"', "https://h/a b", "https://h/a%20b", id="a URL with a space"),
        pytest.param('type = "url", schemes = ["ftp"]', "ftp://h/x", "ftp://h/x", id="another scheme"),
        pytest.param('type = "path"', "docs/a.md", "./docs/a.md", id="a path"),
        pytest.param('type = "path"', ".", "./.", id="the root itself"),
        pytest.param('type = "path"', "-rf", "./-rf", id="a file name with a leading dash"),
        pytest.param('type = "path"', "new/file", "./new/file", id="a file that does not exist yet"),
        pytest.param('type = "path"', "in/a.md", "./docs/a.md", id="a link that stays inside"),
        pytest.param('type = "path", must_exist = true', "docs", "./docs", id="an existing folder"),
        pytest.param('type = "ip_address"', "192.0.2.1", "192.0.2.1", id="IPv4"),
        pytest.param('type = "ip_address"', "2001:DB8::0001", "2001:db8::1", id="IPv6 in its normal form"),
        pytest.param('type = "cidr"', "10.0.0.0/8", "10.0.0.0/8", id="a network"),
        pytest.param('type = "cidr"', "2001:db8::/32", "2001:db8::/32", id="a network of IPv6"),
        pytest.param('type = "hostname"', "WWW.example.org", "www.example.org", id="a host name in lower case"),
        pytest.param('type = "hostname"', "a" * 63 + ".b", "a" * 63 + ".b", id="the longest label"),
        pytest.param('type = "scope_target"', "example.org", "example.org", id="a target that is a name"),
        pytest.param('type = "scope_target", scope = ["10.0.0.0/8"]', "10.1.0.0/16", "10.1.0.0/16", id="in a network"),
        pytest.param('type = "scope_target", scope = ["*.b.org"]', "a.b.org", "a.b.org", id="below a name"),
        pytest.param('type = "duration"', "1h30m", 5_400, id="a duration in seconds"),
        pytest.param('type = "duration", min = 60, max = 60', "1m", 60, id="a duration on both bounds"),
        pytest.param('type = "regex"', "^a.*[0-9]+$", "^a.*[0-9]+$", id="a pattern"),
        pytest.param('type = "array", items = { type = "port" }', [1, 2], (1, 2), id="a list"),
        pytest.param('type = "array", items = { type = "string" }', [], (), id="an empty list"),
        pytest.param('type = "array", items = { type = "path" }', ["docs"], ("./docs",), id="a list of paths"),
    ],
)
def test_a_valid_value_is_normalised(root: Path, declared: str, value: Any, expected: Any) -> None:
    found = read(root, declared, value)["x"]
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("declared", "value", "says"),
    [
        pytest.param('type = "string"', 3, "string", id="a number for a text"),
        pytest.param('type = "string"', None, "string", id="null for a text"),
        pytest.param('type = "string", max = 2', "abc", "longer than 2", id="too long"),
        pytest.param('type = "string"', "x" * 10_001, "$.x", id="longer than the general limit"),
        pytest.param('type = "string", min = 1', "", "shorter than 1", id="too short"),
        pytest.param(
            'type = "string", pattern = "a|b"', "xa", "does not match", id="a pattern must match the whole text"
        ),
        pytest.param('type = "string", pattern = "a"', "a\n", "does not match", id="a pattern and a line break"),
        pytest.param('type = "string"', "a\nb", "U+000A", id="a line break"),
        pytest.param('type = "string"', "a\0b", "U+0000", id="NUL"),
        pytest.param('type = "string", multiline = true', "a\rb", "U+000D", id="a carriage return in lines"),
        pytest.param('type = "string"', "a\u2028b", "U+2028", id="a line separator"),
        pytest.param('type = "string"', "\x1b[2J", "U+001B", id="an escape sequence"),
        pytest.param('type = "string"', "\ud800", "not valid Unicode", id="a lone surrogate"),
        pytest.param('type = "integer"', "3", "integer", id="a text for an integer"),
        pytest.param('type = "integer"', True, "integer", id="a boolean for an integer"),
        pytest.param('type = "integer"', 2.5, "integer", id="a fraction"),
        pytest.param('type = "integer", min = 1', 0, "less than the minimum", id="below the minimum"),
        pytest.param('type = "integer", max = 5', 6, "greater than the maximum", id="above the maximum"),
        pytest.param('type = "integer"', 10**30, "greater than the maximum", id="a huge number"),
        pytest.param('type = "boolean"', "true", "boolean", id="a text for a boolean"),
        pytest.param('type = "boolean"', 1, "boolean", id="a number for a boolean"),
        pytest.param('type = "enum", allowed = ["a"]', "b", "not", id="no allowed word"),
        pytest.param('type = "port"', 0, "minimum", id="port zero"),
        pytest.param('type = "port"', 65_536, "maximum", id="above the last port"),
        pytest.param('type = "url"', "www.example.org", "scheme", id="a URL without scheme"),
        pytest.param('type = "url"', "file:///etc/passwd", "scheme", id="a URL of a file"),
        pytest.param('type = "url"', "https:///x", "no host", id="a URL without host"),
        pytest.param('type = "url"', "https://u:p@h/", "credentials", id="a URL with a password"),
        pytest.param('type = "url"', "https://@h/", "credentials", id="a URL with an empty user"),
        pytest.param('type = "url"', "https://h\\@evil/", "credentials", id="a backslash before the host"),
        pytest.param('type = "url"', "https://h\\evil/", "no host", id="a backslash in the host"),
        pytest.param('type = "url"', "https://１２７.0.0.1/", "no URL", id="full-width digits"),
        pytest.param(
            'type = "url", pattern = "https://h/a/.*"', "https://h/a/../b", "`..`", id="a URL with a parent segment"
        ),
        pytest.param(
            'type = "url", pattern = "https://h/a/.*"', "https://h/a/%2e%2e/b", "`..`", id="an encoded parent segment"
        ),
        pytest.param('type = "path"', "../x", "`..`", id="above the root"),
        pytest.param('type = "path"', "docs/../docs", "`..`", id="a parent segment"),
        pytest.param('type = "path"', "/etc/passwd", "outside the root", id="an absolute path"),
        pytest.param('type = "path"', "out/x", "outside the root", id="a link that leads out"),
        pytest.param('type = "path"', "a\0b", "U+0000", id="NUL in a path"),
        pytest.param('type = "path"', "", "shorter than 1", id="no path"),
        pytest.param('type = "path", must_exist = true', "gone", "no such file", id="a missing file"),
        pytest.param('type = "ip_address"', "010.0.0.1", "no IP", id="leading zeros"),
        pytest.param('type = "ip_address"', "fe80::1%eth0", "zone", id="a zone"),
        pytest.param('type = "ip_address"', "1.2.3", "no IP", id="three parts"),
        pytest.param('type = "cidr"', "10.0.0.1/8", "host bits", id="host bits"),
        pytest.param('type = "cidr"', "10.0.0.0", "no network", id="an address for a network"),
        pytest.param('type = "cidr"', "10.0.0.0/33", "host bits", id="a prefix that is too long"),
        pytest.param('type = "hostname"', "a..b", "no host name", id="an empty label"),
        pytest.param('type = "hostname"', "-a.org", "no host name", id="a label that begins with a dash"),
        pytest.param('type = "hostname"', "a" * 64, "no host name", id="a label that is too long"),
        pytest.param('type = "hostname"', "2130706433", "number", id="a number for a name"),
        pytest.param('type = "hostname"', "a.0x7f", "number", id="a hexadecimal number"),
        pytest.param('type = "hostname"', "еxample.org", "no host name", id="a letter that looks the same"),
        pytest.param('type = "scope_target"', "*.example.org", "wildcards", id="a wildcard"),
        pytest.param('type = "scope_target", scope = ["*.b.org"]', "b.org", "out of scope", id="the name itself"),
        pytest.param(
            'type = "scope_target", scope = ["*.b.org"]', "eb.org", "out of scope", id="a name with the same ending"
        ),
        pytest.param('type = "scope_target", scope = ["10.0.0.0/8"]', "0.0.0.0/0", "out of scope", id="a wider net"),
        pytest.param('type = "scope_target", scope = ["10.0.0.0/8"]', "a.org", "out of scope", id="a name for a net"),
        pytest.param('type = "scope_target", scope = ["10.0.0.0/8"]', "::1", "out of scope", id="the other family"),
        pytest.param('type = "duration"', "0s", "no duration", id="no time"),
        pytest.param('type = "duration"', "5", "no duration", id="a duration without unit"),
        pytest.param('type = "duration"', "5m\n", "no duration", id="a duration and a line break"),
        pytest.param('type = "duration", max = 60', "61s", "longer than 60 s", id="too long a duration"),
        pytest.param('type = "regex"', "(a", "no pattern", id="a broken pattern"),
        pytest.param('type = "regex"', "(?=a)", "no pattern", id="a pattern that looks ahead"),
        pytest.param('type = "array", items = { type = "port" }', [1, "2"], "integer", id="a wrong item"),
        pytest.param('type = "array", items = { type = "string" }', ["a\0"], "U+0000", id="a bad item"),
        pytest.param('type = "array", items = { type = "string" }', "a", "array", id="a text for a list"),
        pytest.param('type = "array", items = { type = "string" }', ["a"] * 101, "$.x", id="too many items"),
        pytest.param('type = "array", max = 1, items = { type = "string" }', ["a", "b"], "more than 1", id="two items"),
    ],
)
def test_an_invalid_value_is_refused_with_its_name(root: Path, declared: str, value: Any, says: str) -> None:
    with pytest.raises(ToolError) as caught:
        read(root, declared, value)
    assert says in str(caught.value)
    assert caught.value.kind in {"InvalidArguments", "PathRefused"}
    assert not caught.value.retryable


def test_an_undeclared_argument_is_refused(root: Path) -> None:
    with pytest.raises(ToolError, match="Additional properties"):
        checked_values({"y": "a"}, {}, PathContext(FileRoot(root)))


def test_the_model_gets_real_json_types() -> None:
    arguments = {
        "path": Argument(type="path", description="The file."),
        "limit": Argument(type="integer", min=1, max=9, default=5),
        "all": Argument(type="boolean", required=False),
        "names": Argument(type="array", items=Argument(type="string", pattern="a+"), required=False, min=1),
    }
    assert parameters_schema(arguments) == {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "minLength": 1,
                "maxLength": 4_000,
                "description": "The file. (a path under the root, without `..`)",
            },
            "limit": {"type": "integer", "minimum": 1, "maximum": 9, "default": 5},
            "all": {"type": "boolean"},
            "names": {
                "type": "array",
                "items": {"type": "string", "maxLength": 10_000, "pattern": "^(?:a+)$"},
                "minItems": 1,
                "maxItems": 100,
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }


@given(st.text(max_size=5), st.sampled_from("-‐‑–—―−－﹣⸺\u00ad"), st.text(max_size=20))
def test_a_dash_after_invisible_characters_counts_as_a_flag(before: str, dash: str, after: str) -> None:
    invisible = "".join(c for c in before if c.isspace() or c in "\u200b\u200d\ufeff\u202e")
    assert is_like_flag(invisible + dash + after)


@given(st.from_regex(r"[A-Za-z0-9/.@+=][^\x00]*", fullmatch=True))
def test_a_value_with_a_leading_letter_is_no_flag(value: str) -> None:
    assert not is_like_flag(value)
