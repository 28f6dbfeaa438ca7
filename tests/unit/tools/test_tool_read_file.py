"""The `read_file` tool."""

import asyncio
import os
import re
import threading
import tracemalloc
from itertools import count
from pathlib import Path

import pytest

from orga.activities.adapters.tools.read_file import TIME_LIMIT_S, ReadFile
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.media import MAX_IMAGE_BYTES
from tests.support.tools.calls import CONTEXT, failure, result
from tests.support.tools.held import PATIENCE_S
from tests.support.values.pictures import A_GIF, a_png

READ_AT_ONCE = 4
"""The number of reads that a worker runs at once. Further reads wait."""


@pytest.fixture(name="tool")
def a_tool(tmp_path: Path) -> ReadFile:
    return ReadFile(FileRoot(tmp_path))


def lines_of(tmp_path: Path, count: int) -> None:
    (tmp_path / "f.txt").write_text("".join(f"line {n}\n" for n in range(1, count + 1)))


async def test_a_short_file_is_read_whole(tool: ReadFile, tmp_path: Path) -> None:
    lines_of(tmp_path, 2)
    assert await result(tool, path="f.txt") == "f.txt (lines 1-2 of 2)\n1\tline 1\n2\tline 2"


async def test_a_part_of_a_file_is_read(tool: ReadFile, tmp_path: Path) -> None:
    lines_of(tmp_path, 9)
    assert await result(tool, path="f.txt", start_line=3, end_line=4) == "f.txt (lines 3-4 of 9)\n3\tline 3\n4\tline 4"


async def test_an_end_after_the_last_line_means_the_last_line(tool: ReadFile, tmp_path: Path) -> None:
    lines_of(tmp_path, 2)
    assert (await result(tool, path="f.txt", start_line=2, end_line=99)).endswith("(lines 2-2 of 2)\n2\tline 2")


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"], ids=["no end", "unix", "windows"])
async def test_line_ends_are_not_shown(tool: ReadFile, tmp_path: Path, ending: str) -> None:
    (tmp_path / "f.txt").write_bytes(f"a{ending or chr(10)}b{ending}".encode())
    assert (await result(tool, path="f.txt")).splitlines()[1:] == ["1\ta", "2\tb"]


async def test_a_long_file_is_read_in_parts_without_gaps(tool: ReadFile, tmp_path: Path) -> None:
    lines_of(tmp_path, 1_000)
    first = (await result(tool, path="f.txt")).splitlines()
    assert first[0] == "f.txt (lines 1-400 of 1000)"
    assert first[-1] == "[cut at line 400 of 1000; call read_file with start_line=401 for more]"
    assert (await result(tool, path="f.txt", start_line=401)).splitlines()[1] == "401\tline 401"
    assert (await result(tool, path="f.txt", start_line=801)).splitlines()[-1] == "1000\tline 1000"


async def test_the_size_of_a_part_is_bounded(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text(("x" * 999 + "\n") * 100)
    text = await result(tool, path="f.txt")
    assert len(text) < 16_200
    assert "[cut at line 15 of 100; call read_file with start_line=16 for more]" in text


async def test_a_very_long_line_is_cut_and_the_next_can_be_read(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("ä" * 1_000_000 + "\nnext\n")
    lines = (await result(tool, path="f.txt")).splitlines()
    assert lines[0] == "f.txt (lines 1-1 of 2)"
    assert len(lines[1].encode()) < 16_100
    assert lines[2].startswith("[line 1 is cut at 16,000 bytes")
    assert lines[3] == "[cut at line 1 of 2; call read_file with start_line=2 for more]"


@pytest.mark.parametrize(
    ("rest", "is_cut"),
    [
        pytest.param(b"\n", False, id="a whole line"),
        pytest.param(b"\r\n", False, id="a whole line of Windows"),
        pytest.param(b"\rrest\n", True, id="a carriage return within it"),
        pytest.param(b"x\r\n", True, id="one byte more"),
        pytest.param(b"x", True, id="one byte more at the end of the file"),
    ],
)
async def test_a_cut_line_is_always_marked(tool: ReadFile, tmp_path: Path, rest: bytes, is_cut: bool) -> None:
    (tmp_path / "f.txt").write_bytes(b"a" * 16_000 + rest)
    assert ("[line 1 is cut at 16,000 bytes" in await result(tool, path="f.txt")) == is_cut


async def test_a_huge_file_does_not_fill_the_memory(tool: ReadFile, tmp_path: Path) -> None:
    with (tmp_path / "f.txt").open("wb") as file:
        for _ in range(50):
            file.write((b"x" * 999 + b"\n") * 1_000)
    tracemalloc.start()
    text = await result(tool, path="f.txt", start_line=40_000, end_line=40_001)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert text.startswith("f.txt (lines 40000-40001 of 50000)")
    assert peak < 2_000_000


def slow(tmp_path: Path, *, pieces: int) -> ReadFile:
    """Return the tool with a clock by which this many pieces take the whole time limit."""
    ticks = count(step=TIME_LIMIT_S / pieces)
    return ReadFile(FileRoot(tmp_path), clock=lambda: next(ticks))


async def test_lines_are_counted_until_the_time_limit(tmp_path: Path) -> None:
    """The requested lines are available long before the end of a huge file."""
    lines_of(tmp_path, 200_000)
    lines = (await result(slow(tmp_path, pieces=405), path="f.txt")).splitlines()
    assert lines[400] == "400\tline 400"
    [seen] = re.findall(r"^f.txt \(lines 1-400 of (\d+) or more\)$", lines[0])
    assert 401 < int(seen) < 200_000
    assert lines[-1] == f"[cut at line 400 of {seen} or more; call read_file with start_line=401 for more]"


async def test_lines_read_before_the_time_limit_are_shown(tmp_path: Path) -> None:
    lines_of(tmp_path, 100)
    lines = (await result(slow(tmp_path, pieces=3), path="f.txt")).splitlines()
    assert lines == [
        "f.txt (lines 1-3 of 3 or more)",
        *(f"{n}\tline {n}" for n in (1, 2, 3)),
        "[cut at line 3 of 3 or more; call read_file with start_line=4 for more]",
    ]


async def test_a_requested_line_at_the_time_limit_is_not_marked_as_cut(tmp_path: Path) -> None:
    lines_of(tmp_path, 100)
    text = await result(slow(tmp_path, pieces=3), path="f.txt", end_line=3)
    assert text.splitlines()[-1] == "3\tline 3"


async def test_a_line_beyond_the_time_limit_is_reported_as_not_reached(tmp_path: Path) -> None:
    lines_of(tmp_path, 100)
    error = await failure(slow(tmp_path, pieces=9), path="f.txt", start_line=50)
    assert error.kind == "FileTooLarge"
    assert "line 50 is not reached in 10 s; search_text" in str(error)


async def test_cancelled_reads_hold_no_thread(tmp_path: Path) -> None:
    """Otherwise four files of terabytes would block all other reads of a worker."""
    huge, begun = tmp_path / "huge.txt", set[int]()
    huge.write_bytes(b"a\n" * 10_000)
    os.truncate(huge, 1 << 42)
    (tmp_path / "f.txt").write_text("a\n")

    def stands_still() -> float:
        begun.add(threading.get_ident())
        return 0.0

    tool = ReadFile(FileRoot(tmp_path), clock=stands_still)
    try:
        async with asyncio.timeout(PATIENCE_S):
            reads = [asyncio.create_task(result(tool, path="huge.txt")) for _ in range(READ_AT_ONCE)]
            while len(begun) < READ_AT_ONCE:
                await asyncio.sleep(0.01)
            for read in reads:
                read.cancel()
            assert await result(tool, path="f.txt") == "f.txt (lines 1-1 of 1)\n1\ta"
    finally:
        os.truncate(huge, 0)


async def test_undecodable_bytes_are_replaced_with_a_note(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_bytes(b"caf\xe9\n")
    assert await result(tool, path="f.txt") == (
        "f.txt (lines 1-1 of 1, not valid UTF-8: undecodable bytes shown as \ufffd)\n1\tcaf\ufffd"
    )


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        pytest.param("a.zip", b"PK\x03\x04\0\0", "ZIP archive or Office document", id="by its first bytes"),
        pytest.param("a.mp3", b"ID3\0", "audio/mpeg", id="by its name"),
        pytest.param("a", b"ab\0", "unknown kind", id="unknown"),
        pytest.param("a.txt", "hällo".encode("utf-16"), "UTF-16 text", id="UTF-16"),
    ],
)
async def test_a_binary_file_is_refused_with_its_size_and_kind(
    tool: ReadFile, tmp_path: Path, name: str, data: bytes, kind: str
) -> None:
    (tmp_path / name).write_bytes(data)
    error = await failure(tool, path=name)
    assert error.kind == "BinaryFile"
    assert f"({len(data)} bytes, {kind})" in str(error)


async def test_a_picture_is_returned_itself(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(a_png(640, 480))
    output = await tool.call({"path": "a.txt"}, CONTEXT)
    assert (output.content, [part.line() for part in output.media]) == (
        "a.txt",
        ["[image a.txt, 640x480, 378 bytes]"],
    )


async def test_a_large_picture_is_refused_with_the_remedy(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "a.gif").write_bytes(A_GIF + bytes(MAX_IMAGE_BYTES))
    error = await failure(tool, path="a.gif")
    assert (error.kind, "the limit is 3.8 MB. Scale it down" in str(error)) == ("UnusableMedia", True)


async def test_an_empty_file_is_shown_as_empty(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("")
    assert await result(tool, path="f.txt") == "f.txt (empty)"


@pytest.mark.parametrize(
    ("arguments", "kind", "remedy"),
    [
        pytest.param({"path": "none.txt"}, "NotFound", "list_files", id="missing"),
        pytest.param({"path": "."}, "IsAFolder", "name a file in it", id="the root"),
        pytest.param({"path": "sub"}, "IsAFolder", "name a file in it", id="a folder"),
        pytest.param({"path": "f.txt/x"}, "NotAFolder", "a part of it is a file", id="below a file"),
        pytest.param(
            {"path": "f.txt", "start_line": 4}, "InvalidArguments", "it has 3 lines", id="start beyond the end"
        ),
        pytest.param(
            {"path": "f.txt", "start_line": 3, "end_line": 2}, "InvalidArguments", "swap", id="end before start"
        ),
        pytest.param({"path": "f.txt", "start_line": 0}, "InvalidArguments", "start_line", id="line zero"),
    ],
)
async def test_errors_show_the_remedy(
    tool: ReadFile, tmp_path: Path, arguments: dict[str, object], kind: str, remedy: str
) -> None:
    lines_of(tmp_path, 3)
    (tmp_path / "sub").mkdir()
    error = await failure(tool, **arguments)
    assert error.kind == kind
    assert remedy in str(error)
