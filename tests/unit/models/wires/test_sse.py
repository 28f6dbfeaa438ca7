"""Server-sent events are decoded the same for any split of their bytes, and within bounds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.adapters.models import http
from orga.activities.adapters.models.http import SseDecoder, SseTooLarge


def decoded(*chunks: bytes) -> list[str]:
    decoder = SseDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.finish()


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(b"data: a\n\ndata: b\n\n", ["a", "b"], id="events end at a blank line"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"], id="CRLF"),
        pytest.param(b"data: a\r\rdata: b\r\r", ["a", "b"], id="CR alone"),
        pytest.param(b"data: a\ndata: b\n\n", ["a\nb"], id="several data lines are one event"),
        pytest.param(b": OPENROUTER PROCESSING\n\ndata: a\n\n", ["a"], id="comments are ignored"),
        pytest.param(b"event: ping\nid: 7\nretry: 3\ndata: a\n\n", ["a"], id="other fields are ignored"),
        pytest.param(b"data:a\n\n", ["a"], id="the space after the colon is optional"),
        pytest.param(b"data:  a\n\n", [" a"], id="only one space belongs to the field"),
        pytest.param(b"data\n\n", [""], id="a field without colon is empty"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", ["a"], id="a byte order mark is ignored"),
        pytest.param(b"data: a\n\ndata: [DONE]", ["a", "[DONE]"], id="the last blank line is optional"),
        pytest.param(b"event: message_stop\n\n", [], id="an event without data is ignored"),
        pytest.param(b"data: \xff\n\n", ["\ufffd"], id="invalid UTF-8 is replaced"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_streams_are_decoded_to_events(stream: bytes, expected: list[str]) -> None:
    assert decoded(stream) == expected
    assert decoded(*(bytes([byte]) for byte in stream)) == expected


@given(st.lists(st.text()), st.data(), st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_text_survives_any_split(texts: list[str], data: st.DataObject, end: str) -> None:
    events = [json.dumps(text, ensure_ascii=False).replace("\x85", " ") for text in texts]
    stream = "".join(f"data: {event}{end}{end}" for event in events).encode(errors="replace")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert decoded(*chunks) == decoded(stream)
    assert len(decoded(stream)) == len(texts)


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([b"data: " + b"a" * 60] * 2, id="a line without end"),
        pytest.param([b"data: " + b"a" * 60 + b"\n"] * 2, id="an event of many lines"),
        pytest.param([b": " + b"a" * 60 + b"\n\n"] * 8, id="a stream of comments"),
    ],
)
def test_long_lines_events_and_streams_are_refused(chunks: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_EVENT_BYTES", 100)
    monkeypatch.setattr(http, "MAX_STREAM_BYTES", 500)
    decoder = SseDecoder()
    for part in chunks[:-1]:
        decoder.feed(part)
    with pytest.raises(SseTooLarge):
        decoder.feed(chunks[-1])
