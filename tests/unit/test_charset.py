"""Whatever character set a server claims, its body becomes text, quickly."""

import pytest

from activities.adapters.tools.charset import decoded


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        pytest.param("café".encode(), None, "café", id="none is UTF-8"),
        pytest.param(b"caf\xe9", "latin-1", "café", id="one of the web"),
        pytest.param(b"\x80", "windows-1252", "€", id="one of the web under its own name"),
        pytest.param(b"\xff", "utf-8", "\ufffd", id="bytes that are none of it"),
        pytest.param(b"\xef\xbb\xbfx", "utf-8", "x", id="a byte order mark"),
        pytest.param(b"x", "zip", "x", id="a codec that is no text"),
        pytest.param(b"x", "idna", "x", id="a codec that replaces nothing"),
        pytest.param(b"a-b", "punycode", "a-b", id="a codec that is slow"),
        pytest.param(b"x", "a\0b", "x", id="no name at all"),
    ],
)
def test_a_body_is_text(body: bytes, charset: str | None, text: str) -> None:
    assert decoded(body, charset) == text
