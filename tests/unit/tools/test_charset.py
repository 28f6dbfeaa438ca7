"""The body of a response becomes text quickly, whatever character set a server declares."""

import pytest

from orga.activities.adapters.tools.fetch_url import FetchedPage, decoded_text, title_and_text

RUSSIAN = (
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Платёж получен и будет обработан завтра утром. " * 4
)
JAPANESE = "これは日本語の文章です。請求書は今月末までにお支払いください。ありがとうございます。" * 4


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        pytest.param("café".encode(), None, "café", id="no charset is UTF-8"),
        pytest.param("café".encode()[:-1], None, "caf\ufffd", id="UTF-8 cut within a character"),
        pytest.param(b"caf\xe9", "latin-1", "café", id="Latin 1"),
        pytest.param(b"\x80", "windows-1252", "€", id="windows-1252 under its own name"),
        pytest.param(b"\x80 \x93a\x94", "iso-8859-1", "€ “a”", id="windows-1252 that is called Latin 1"),
        pytest.param(b"\x80", "US-ASCII", "€", id="windows-1252 that is called ASCII"),
        pytest.param("日本語①".encode("cp932"), "shift_jis", "日本語①", id="Shift JIS with what Windows added"),
        pytest.param("日本語".encode("cp932"), "x-sjis", "日本語", id="Shift JIS by an old label"),
        pytest.param("日本語".encode("euc_jp"), "EUC-JP", "日本語", id="EUC"),
        pytest.param("日本語".encode("iso2022_jp"), "iso-2022-jp", "日本語", id="JIS with escapes"),
        pytest.param("汉字镕€".encode("gb18030"), "gb2312", "汉字镕€", id="more than GB 2312 under its name"),
        pytest.param("漢字".encode("big5"), "big5", "漢字", id="Big5"),
        pytest.param("똠방각하".encode("cp949"), "ks_c_5601-1987", "똠방각하", id="Korean by an old label"),
        pytest.param("Привет".encode("koi8_r"), "KOI8-R", "Привет", id="upper case"),
        pytest.param("Привет".encode("cp1251"), " windows-1251 ", "Привет", id="spaces around it"),
        pytest.param("Привет".encode("cp866"), "ibm866", "Привет", id="DOS"),
        pytest.param("ğüş".encode("iso8859_9"), "iso-8859-9", "ğüş", id="Turkish"),
        pytest.param("héé".encode("mac_roman"), "macintosh", "héé", id="old Mac"),
        pytest.param("héé".encode("utf-16"), "iso-8859-1", "héé", id="a byte order mark wins"),
        pytest.param("héé".encode("utf-16-be"), "utf-16be", "héé", id="UTF-16 without a mark"),
        pytest.param(RUSSIAN.encode("cp1251"), None, RUSSIAN, id="Russian without a label"),
        pytest.param(RUSSIAN.encode("koi8_r"), "none-such", RUSSIAN, id="Russian with an unknown label"),
        pytest.param(JAPANESE.encode("cp932"), None, JAPANESE, id="Japanese without a label"),
        pytest.param(JAPANESE.encode("euc_jp"), None, JAPANESE, id="Japanese in EUC without a label"),
        pytest.param(b"\xff", "utf-8", "\ufffd", id="invalid bytes"),
        pytest.param(b"\xef\xbb\xbfx", "utf-8", "x", id="a byte order mark"),
        pytest.param(b"x", "zip", "x", id="a codec that is not for text"),
        pytest.param(b"x", "idna", "x", id="a codec that replaces nothing"),
        pytest.param(b"a-b", "punycode", "a-b", id="a codec that is slow"),
        pytest.param(b"x", "a\0b", "x", id="no name at all"),
        pytest.param(b"+AGE-", "utf-7", "+AGE-", id="UTF-7, which can hide text"),
    ],
)
def test_a_body_is_decoded_to_text(body: bytes, charset: str | None, text: str) -> None:
    assert decoded_text(body, charset) == text


@pytest.mark.parametrize(
    ("head", "media_type"),
    [
        pytest.param('<meta charset="koi8-r">', "text/html", id="meta"),
        pytest.param("<META CharSet = koi8-r>", "text/html", id="meta without quotes, in capitals"),
        pytest.param(
            '<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">', "text/html", id="http-equiv"
        ),
        pytest.param('<?xml version="1.0" encoding="koi8-r"?>', "application/xml", id="XML"),
    ],
)
async def test_a_charset_declared_in_a_document_is_used(head: str, media_type: str) -> None:
    body = f"{head}<p>Привет, мир</p>".encode("koi8_r")
    _, text = await title_and_text(FetchedPage("http://a.test", media_type, None, body, False))
    assert "Привет, мир" in text
