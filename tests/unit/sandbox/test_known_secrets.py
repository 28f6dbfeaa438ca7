"""Known secrets: which variables contain them, in which forms they are found, and what is unchanged."""

import html
import json
import re
from base64 import b32encode, b64encode, encodebytes, urlsafe_b64encode
from pathlib import Path
from urllib.parse import quote, quote_plus

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orga.activities.text.secrets import COMMON_VALUES, NO_SECRETS, REDACTED, KnownSecrets
from orga.client.config.sections import OrgaConfig
from orga.client.workers.parts import configured_parts
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.tool_calls.gate import PERMIT_KEY

SECRET = 'pass "word\\ é'
KNOWN = KnownSecrets.from_environment({"DB_PASSWORD": SECRET})


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(SECRET, id="verbatim"),
        pytest.param(f"https://host/?q={SECRET}&x", id="within a text"),
        pytest.param(json.dumps({"a": SECRET}), id="in JSON"),
        pytest.param(json.dumps({"a": SECRET}, ensure_ascii=False), id="in JSON without escapes"),
        pytest.param(repr({"a": SECRET}), id="in a representation"),
        pytest.param(json.dumps({"line": repr({"a": SECRET})}), id="in a representation in JSON"),
        pytest.param(json.dumps(json.dumps([SECRET])), id="in JSON in JSON"),
    ],
)
def test_a_secret_is_hidden_in_every_form(shown: str) -> None:
    found = KNOWN.redact(shown)
    assert REDACTED in found
    assert "word" not in found


@given(st.text(min_size=8), st.text(), st.text())
def test_no_secret_of_any_characters_remains(secret: str, before: str, after: str) -> None:
    assume(secret.lower() not in COMMON_VALUES)
    known = KnownSecrets.from_environment({"A_TOKEN": secret})
    found = known.redact(before + secret + after)
    assert secret not in found or secret in REDACTED or secret in before + REDACTED + after


@pytest.mark.parametrize(
    ("environment", "also", "text", "expected"),
    [
        pytest.param({"A_TOKEN": "abcdefgh"}, (), "abcdefgh", REDACTED, id="by its name"),
        pytest.param({"A_TOKEN": "abc"}, (), "abc", "abc", id="too short to be one"),
        pytest.param({"HOME": "/home/me"}, (), "/home/me", "/home/me", id="of another name"),
        pytest.param({"PWD": "/home/me"}, (), "/home/me", "/home/me", id="the folder of a shell"),
        pytest.param({"OLDPWD": "/home/me"}, (), "/home/me", "/home/me", id="the previous folder of a shell"),
        pytest.param({"DB_PWD": "abcdefgh"}, (), "abcdefgh", REDACTED, id="no folder"),
        pytest.param({"PWD": "abcdefgh"}, ("PWD",), "abcdefgh", REDACTED, id="a folder variable that is configured"),
        pytest.param({"TEAM": "abcdefgh"}, ("TEAM",), "abcdefgh", REDACTED, id="configured"),
        pytest.param({}, ("TEAM",), "TEAM", "TEAM", id="configured but not set"),
        pytest.param({"A_KEY": "abcdefgh, ijklmnop"}, (), "ijklmnop", REDACTED, id="one of a list"),
        pytest.param({"A_KEY": "abcdefgh", "B_KEY": "abcdefghij"}, (), "abcdefghij", REDACTED, id="the longest first"),
    ],
)
def test_values_count_as_secrets_by_name_length_or_configuration(
    environment: dict[str, str], also: tuple[str, ...], text: str, expected: str
) -> None:
    assert KnownSecrets.from_environment(environment, also).redact(text) == expected


@given(st.text("ab", min_size=6, max_size=12), st.text("ab", max_size=30))
def test_the_longest_prefix_of_a_secret_is_removed_from_a_cut_end(secret: str, text: str) -> None:
    found = KnownSecrets((secret,)).redact(text, is_cut=True)
    whole = text.replace(secret, REDACTED)
    begun = [size for size in range(4, len(secret)) if whole.endswith(secret[:size])]
    assert found == whole[: len(whole) - max(begun, default=0)]


def test_a_record_without_a_secret_is_unchanged() -> None:
    reply = Reply.of("word", calls=(ToolCall(call_id="c1", name="look", arguments={"a": [1, None, True]}),))
    assert KNOWN.redact_record(reply) is reply
    assert NO_SECRETS.redact_record(reply) is reply


def test_nested_values_of_a_record_are_searched_and_unset_fields_stay_unset() -> None:
    call = ToolCall(call_id="c1", name="look", arguments={SECRET: [{"a": f"x{SECRET}"}, 1]})
    found = KNOWN.redact_record(Reply.of("t", calls=(call,)))
    assert found.calls[0].arguments == {REDACTED: [{"a": f"x{REDACTED}"}, 1]}
    assert found.model_fields_set == {"parts"}


def test_the_repr_shows_no_secret() -> None:
    assert "word" not in repr(KNOWN)


KEY = "sk/live+Zq8~é=w9&Rt7"


@pytest.mark.parametrize("value", [KEY, "abcdefgh", "hunter2-hunter2", "ключ-секретный"])
@pytest.mark.parametrize("before", ["", "u", "us", "user:", "x-api-key:", "\n\n"])
@pytest.mark.parametrize("after", ["", ":", "@@", "more of it"])
def test_base64_of_any_text_with_a_secret_shows_none(value: str, before: str, after: str) -> None:
    """`user:password` of basic authentication, a JSON body or an image's data shift the letters."""
    known = KnownSecrets.from_values([value])
    for encode in (b64encode, urlsafe_b64encode):
        shown = known.redact(encode(f"{before}{value}{after}".encode()).decode())
        assert REDACTED in shown
        left = shown.replace(REDACTED, "")
        assert len(left) <= len(encode(f"{before}{after}".encode())) + 6


@pytest.mark.parametrize("before", range(40, 80, 3))
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n    ", "\n> ", "\n12\t", "\\n", "\\r\\n", '\\n" +\n    "'])
def test_base64_in_lines_shows_no_secret(before: int, end: str) -> None:
    """`base64` breaks after 76 characters, at any place of a secret."""
    shown = encodebytes(b"a" * before + KEY.encode() + b"b" * 60).decode().strip().replace("\n", end)
    found = KnownSecrets.from_values([KEY]).redact(f"data:\n{shown}\n--\nmore")
    assert REDACTED in found
    assert found.endswith("\n--\nmore")


def test_lines_without_a_secret_are_unchanged() -> None:
    shown = encodebytes(b"a" * 200).decode()
    assert KnownSecrets.from_values([KEY]).redact(shown) == shown


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(quote(KEY), id="quoted, a slash kept"),
        pytest.param(quote(KEY, safe=""), id="quoted"),
        pytest.param(re.sub("%..", lambda e: e[0].lower(), quote(KEY)), id="escapes in lower case"),
        pytest.param(re.sub("%..", lambda e: e[0].lower(), quote(KEY, safe="")), id="all escapes in lower case"),
        pytest.param(quote_plus(KEY), id="form encoding"),
        pytest.param(str(httpx.URL("https://a.test", params={"k": KEY})), id="in an address by httpx"),
        pytest.param(quote(quote(KEY, safe=""), safe=""), id="quoted twice"),
        pytest.param(quote(KEY, safe="!'()*~"), id="quoted by JavaScript"),
        pytest.param(quote_plus(KEY, safe="*").replace("~", "%7E"), id="quoted by Java"),
        pytest.param(html.escape(KEY).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"), id="in HTML by Go"),
        pytest.param("".join(f"\\u{ord(c):04x}" if c in "&<>='" else c for c in KEY), id="in JSON by Gson"),
        pytest.param("".join(f"\\u{ord(c):04X}" if c in "&<>'+`" else c for c in KEY), id="in JSON by .NET"),
        pytest.param(KEY.encode().hex(), id="hexadecimal"),
        pytest.param(KEY.encode().hex().upper(), id="hexadecimal in capitals"),
        pytest.param(KEY.encode().hex(":"), id="hexadecimal with colons"),
        pytest.param(html.escape(KEY), id="in HTML"),
        pytest.param(b32encode(KEY.encode()).decode(), id="base32"),
        pytest.param("".join(f"&#{ord(c)};" for c in KEY), id="in references of HTML"),
        pytest.param(KEY[::-1], id="reversed"),
        pytest.param(json.dumps(KEY).replace("/", "\\/"), id="in JSON by PHP"),
        pytest.param(json.dumps(KEY, ensure_ascii=False).replace("&", "\\u0026"), id="in JSON by Go"),
        pytest.param(html.escape(KEY).replace("/", "&#x2F;").replace("=", "&#x3D;"), id="by a template of HTML"),
        pytest.param(KEY.encode().hex(" ").upper(), id="hexadecimal in capitals with blanks"),
        pytest.param(KEY.encode().hex("-"), id="hexadecimal with dashes"),
        pytest.param("".join(f"\\x{byte:02X}" for byte in KEY.encode()), id="escapes in capitals"),
        pytest.param("".join(f"%{byte:02x}" for byte in KEY.encode()), id="quoted, each letter"),
        pytest.param("".join(f"%{byte:02X}" for byte in KEY.encode()), id="quoted, each letter, in capitals"),
        pytest.param("".join(f"\\u{ord(c):04x}" for c in KEY), id="escapes of JSON, each letter"),
        pytest.param("".join(f"&#x{ord(c):x};" for c in KEY), id="in hexadecimal references of HTML"),
        pytest.param("".join(f"&#x{ord(c):X};" for c in KEY), id="in hexadecimal references of HTML in capitals"),
        pytest.param("".join(f"\\{byte:03o}" for byte in KEY.encode()), id="octal escapes"),
        pytest.param(str(list(KEY.encode())), id="a list of bytes"),
        pytest.param(json.dumps(list(KEY.encode()), separators=(",", ":")), id="a list of bytes in dense JSON"),
        pytest.param(", ".join(map(hex, KEY.encode())), id="a list of bytes of C"),
        pytest.param(b64encode(KEY.encode("utf-16-le")).decode(), id="base64 of PowerShell"),
        pytest.param(KEY.encode("utf-16-le").hex(), id="hexadecimal of UTF-16"),
    ],
)
def test_a_secret_is_hidden_in_common_encodings(shown: str) -> None:
    found = KnownSecrets.from_values([KEY]).redact(f"before {shown} after")
    assert REDACTED in found
    assert shown not in found


PADDED = b"token = " + KEY.encode() + b"\nnext line of the file\n"


def dumped(data: bytes, group: int = 2, column: str = "  {}", offset: str = "{:08x}: ") -> str:
    lines = [(at, data[at : at + 16]) for at in range(0, len(data), 16)]
    return "\n".join(
        (offset.format(at) + line.hex(" ", -group)).ljust(59)
        + column.format("".join(chr(byte) if 32 <= byte < 127 else "." for byte in line))
        for at, line in lines
    )


def words_of(data: bytes, form: str, size: int) -> str:
    padded = data + bytes(-len(data) % size)
    words = [int.from_bytes(padded[at : at + size], "little") for at in range(0, len(padded), size)]
    return "\n".join(
        f"{at * size:07o} " + " ".join(format(word, form) for word in words[at : at + 8])
        for at in range(0, len(words), 8)
    )


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param("\n".join(map(str, KEY.encode())), id="byte values, one per line"),
        pytest.param(json.dumps(list(KEY.encode()), indent=4), id="byte values in JSON, one per line"),
        pytest.param(json.dumps(dict(enumerate(KEY.encode()))), id="an array of bytes as JavaScript writes it"),
        pytest.param("; ".join(map(str, KEY.encode())), id="byte values with semicolons"),
        pytest.param("\n".join(f"{byte:02x}" for byte in KEY.encode()), id="hexadecimal, one per line"),
        pytest.param(",\n  ".join(f"0x{byte:02X}" for byte in KEY.encode()), id="a list of C, one per line"),
        pytest.param(" ".join(map(oct, KEY.encode())), id="octal numbers"),
        pytest.param(dumped(PADDED), id="xxd"),
        pytest.param(dumped(PADDED, 1), id="xxd with single bytes"),
        pytest.param(json.dumps({"out": dumped(PADDED)}), id="xxd in JSON"),
        pytest.param(re.sub("(.{60})", r"\1\n", PADDED.hex()), id="plain xxd"),
        pytest.param(dumped(PADDED, 1, "  |{}|", "{:08x}  "), id="hexdump -C"),
        pytest.param(words_of(PADDED, "04x", 2), id="hexdump"),
        pytest.param(words_of(PADDED, "08x", 4), id="od by four bytes"),
        pytest.param(words_of(PADDED, "016x", 8), id="od by eight bytes"),
        pytest.param(words_of(PADDED, "04x", 2).replace(" ", " " * 4), id="hexdump -x"),
        pytest.param(b32encode(PADDED).decode(), id="base32 at another offset"),
        pytest.param(words_of(PADDED, "06o", 2), id="od"),
        pytest.param(words_of(PADDED, "03o", 1), id="od -b"),
        pytest.param(words_of(PADDED, "4d", 1), id="od -tu1"),
        pytest.param(KEY.replace("s", "&#115;").replace("/", "&sol;"), id="some references of HTML"),
        pytest.param("".join(f"&#{ord(c):05};" for c in KEY), id="references of HTML with zeros"),
        pytest.param("".join(f"&#{ord(c)}" for c in KEY), id="references of HTML without their end"),
        pytest.param("".join(f"&#x{ord(c):04x};" if c in "se" else c for c in KEY), id="some of hexadecimal"),
        pytest.param(KEY.replace("k", "%6b").replace("é", "%c3%a9"), id="some letters quoted"),
        pytest.param("".join(f"\\u{ord(c):04x}" if c in "se" else c for c in KEY), id="some escapes of JSON"),
        pytest.param("".join(f"\\x{ord(c):02x}" if c in "sk" else c for c in KEY), id="some escapes of Python"),
        pytest.param(b64encode(b64encode(PADDED)).decode(), id="base64 of base64"),
        pytest.param(b64encode(b"x" + b64encode(b"y" + PADDED)).decode(), id="base64 of base64 at another offset"),
        pytest.param(encodebytes(b64encode(PADDED * 3)).decode(), id="base64 of base64 in lines"),
        pytest.param(b64encode(PADDED.hex().encode()).decode(), id="base64 of hexadecimal"),
        pytest.param(b64encode(PADDED).hex(), id="hexadecimal of base64"),
        pytest.param(PADDED.hex().encode().hex(), id="hexadecimal of hexadecimal"),
        pytest.param(dumped(b64encode(PADDED)), id="xxd of base64"),
        pytest.param(str(list(b64encode(PADDED))), id="byte values of base64"),
        pytest.param("".join(f"&#{byte};" for byte in b64encode(PADDED)), id="references of HTML to base64"),
    ],
)  # fmt: skip
def test_a_secret_is_hidden_in_notations_of_any_layout(shown: str) -> None:
    known = KnownSecrets.from_values([KEY])
    found = known.redact(f"(before)\n{shown}\n(after)")
    assert found.startswith("(before)\n")
    assert found.endswith("\n(after)")
    assert REDACTED in found
    assert known.redact(found) == found


@pytest.mark.parametrize("group", [1, 2, 4, 8])
@pytest.mark.parametrize("width", [4, 16])
def test_the_text_column_is_not_part_of_a_dump(group: int, width: int) -> None:
    secret = "aefadaeafdaebaacdcfdbebefcefdede"
    data = f"key={secret}\n".encode()
    lines = [(at, data[at : at + width]) for at in range(0, len(data), width)]
    shown = "\n".join(
        f"{at:08x}: {line.hex(' ', -group).ljust(2 * width + width // group - 1)}  {line.decode().strip()}"
        for at, line in lines
    )
    assert REDACTED in KnownSecrets.from_values([secret]).redact(shown)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(dumped(b"nothing to hide in these lines of a dump"), id="a dump"),
        pytest.param(json.dumps(list(range(256)), indent=1), id="numbers"),
        pytest.param("5 &lt; 6 &amp; a\\nb %41 \\u0041", id="escapes"),
        pytest.param("12 add\nbe  |face|\n0000000 fade", id="words that could be digits"),
    ],
)
def test_a_notation_without_a_secret_is_unchanged(text: str) -> None:
    assert KnownSecrets.from_values([KEY]).redact(text) == text


@given(st.text(max_size=80))
def test_any_text_can_be_searched(text: str) -> None:
    assert KnownSecrets.from_values([KEY]).redact(text) == text


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        pytest.param("DB_PASS", "tz93-qwer", "tz93-qwer", id="pass"),
        pytest.param("PASS", "tz93-qwer", "tz93-qwer", id="pass alone"),
        pytest.param("db_pwd", "tz93-qwer", "tz93-qwer", id="pwd in lower case"),
        pytest.param("GITHUB_PAT", "ghp_0123456789", "ghp_0123456789", id="an access token"),
        pytest.param("SENTRY_DSN", "https://a1b2c3d4e5@sentry.test/1", "https://a1b2c3d4e5@sentry.test/1", id="DSN"),
        pytest.param("SESSION_COOKIE", "sid=0123456789", "sid=0123456789", id="a cookie"),
        pytest.param("API_KEY_2", "tz93-qwer", "tz93-qwer", id="a second one"),
        pytest.param("API_KEY_PROD", "tz93-qwer", "tz93-qwer", id="with a stage name"),
        pytest.param("SECRET_KEY_BASE", "tz93-qwer", "tz93-qwer", id="of Rails"),
        pytest.param("DBPASS", "tz93-qwer", "tz93-qwer", id="pass of a database"),
        pytest.param("SLACK_WEBHOOK_URL", "https://h.test/T0/tz93", "https://h.test/T0/tz93", id="a webhook"),
        pytest.param("DATABASE_URL", "postgres://me:tz93-qwer@db.test/shop", "tz93-qwer", id="of an address"),
        pytest.param("REDIS_URL", "redis://:tz93%2Fqwer@db.test", "tz93/qwer", id="of an address, escaped"),
        pytest.param("AMQP_URI", "amqp://me:tz93-qwer@mq.test", "tz93-qwer", id="of a URI"),
        pytest.param("DATABASE_URL_PROD", "postgres://me:tz93-qwer@db.test/shop", "tz93-qwer", id="of one of several"),
        pytest.param("CELERY_RESULT_BACKEND", "redis://:tz93-qwer@db.test/0", "tz93-qwer", id="under any name"),
        pytest.param(
            "BROKERS", "amqp://a:bcde-fghi@h1/,amqp://a:tz93-qwer@h2/", "tz93-qwer", id="of a list of addresses"
        ),
        pytest.param(
            "GIT_REMOTE", "https://ghp_tz93qwer@git.test/a/b", "ghp_tz93qwer", id="a token in front of a host"
        ),
        pytest.param("JAVA_OPTS", "-Xmx1g -DkeyStorePassword=tz93-qwer -v", "tz93-qwer", id="an option"),
        pytest.param("GCP_CREDENTIALS", '{"a": {"private_key": "tz93-qwer"}}', "tz93-qwer", id="within JSON"),
        pytest.param("AWS_BEARER_TOKEN_BEDROCK", "tz93-qwer", "tz93-qwer", id="a key of Bedrock"),
        pytest.param("AZURE_AUTH", '{"clientSecret": "tz93-qwer"}', "tz93-qwer", id="within JSON of Azure"),
        pytest.param("SERVICE_ACCOUNT", '{"client_secret": "tz93-qwer"}', "tz93-qwer", id="within JSON under any name"),
        pytest.param("TLS_KEY", "-----BEGIN KEY-----\ntz93qwer\nuiop7890\n-----END KEY-----", "tz93qwer", id="a line"),
        pytest.param("MSSQL_CONNECTION_STRING", "Server=db;Pwd=tz93-qwer;", "tz93-qwer", id="of a connection string"),
    ],
)
def test_these_variables_contain_secrets(name: str, value: str, secret: str) -> None:
    found = KnownSecrets.from_environment({name: value}).redact(f"a {secret} b")
    assert found == f"a {REDACTED} b"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        pytest.param("COMPASS", "north-north", "north-north", id="a word with the same ending"),
        pytest.param("KEY_FILE", "/run/keys/a", "/run/keys/a", id="the path of a secret"),
        pytest.param(
            "DATABASE_URL", "postgres://me:tz93-qwer@db.test/shop", "db.test/shop", id="the rest of an address"
        ),
        pytest.param("DATABASE_URL", "postgres://postgres:postgres@db.test", "use postgres", id="a common word"),
        pytest.param("HOME_URL", "https://example.org/a", "https://example.org/a", id="an address without a secret"),
        pytest.param("BAD_URL", "http://[a", "http://[a", id="no address"),
        pytest.param("GIT_REMOTE", "ssh://deployers@git.test/a", "deployers", id="a login name"),
        pytest.param("A_KEY", '{"type": "service_account"}', "a service_account", id="the rest of JSON"),
        pytest.param("TLS_KEY", "-----BEGIN KEY-----\ntz93qwer", "-----BEGIN KEY-----", id="the header of a key"),
    ],
)
def test_these_values_are_unchanged(name: str, value: str, text: str) -> None:
    assert KnownSecrets.from_environment({name: value}).redact(text) == text


def test_permit_keys_in_a_file_are_known_to_the_worker(tmp_path: Path) -> None:
    key = "0123456789abcdef" * 2
    (tmp_path / "keys").write_text(f"{key}\n{key[::-1]}\n")
    env = {PERMIT_KEY: f"@{tmp_path / 'keys'}"}
    parts = configured_parts(OrgaConfig(), env, tmp_path, knows_attributes=False)
    assert parts.secrets.redact(f"the key is {key}, before it was {key[::-1]}").count(REDACTED) == 2
