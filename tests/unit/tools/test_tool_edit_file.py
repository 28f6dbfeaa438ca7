"""The `edit_file` tool."""

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.tools import file_changes
from orga.activities.adapters.tools.file_changes import EditFile, EditRecords
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.ports import Tool, ToolContext, ToolError
from tests.support.tools.calls import failure, result
from tests.support.tools.held import PATIENCE_S, Held


def an_editor(tmp_path: Path) -> EditFile:
    """Return the tool of a new worker, over the same folder and the same records."""
    (tmp_path / "root").mkdir(exist_ok=True)
    return EditFile(FileRoot(tmp_path / "root"), EditRecords(tmp_path / "home" / "edits.db"))


@pytest.fixture(name="root")
def a_root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture(name="tool")
def a_tool(tmp_path: Path, root: Path) -> EditFile:
    return an_editor(tmp_path)


async def attempt(tool: Tool, key: str = "k1", number: int = 1, **arguments: object) -> str:
    """Return the content of one attempt of a call, or its error."""
    context = ToolContext(call_id="c1", idempotency_key=key, attempt=number)
    try:
        return (await tool.call(arguments, context)).content
    except ToolError as error:
        return f"{error.kind}: {error}"


async def test_one_text_is_replaced_and_the_rest_stays(tool: EditFile, root: Path) -> None:
    (root / "f").write_text("one\ntwo\nthree\n")
    assert await result(tool, path="f", old_text="two", new_text="zwei") == "Edited f (line 2, 15 bytes)"
    assert (root / "f").read_text() == "one\nzwei\nthree\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        pytest.param(b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n", id="CRLF"),
        pytest.param(b"a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\nc\r\n", id="CRLF in the arguments"),
        pytest.param(b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n", id="CRLF in the arguments only"),
        pytest.param(b"a\r\nb\r\nc\nd", "b\nc", "x\ny", b"a\r\nx\r\ny\nd", id="mixed ends, mostly CRLF"),
        pytest.param(b"a\nb\nc\r\nd", "b\nc", "x\ny", b"a\nx\ny\r\nd", id="mixed ends, mostly LF"),
        pytest.param(b"a\r\nb", "\n", " ", b"a b", id="a line end alone"),
        pytest.param(b"a\rb\n", "a\rb", "c", b"c\n", id="a carriage return alone"),
        pytest.param(b"\xef\xbb\xbfa\nb", "a", "x", b"\xef\xbb\xbfx\nb", id="a byte order mark"),
        pytest.param("ä b €".encode(), "b", "ß", "ä ß €".encode(), id="UTF-8"),
        pytest.param(b"\xe4 b \xfc", "b", "c", b"\xe4 c \xfc", id="bytes that are no UTF-8"),
        pytest.param(b"a b", " b", "", b"a", id="nothing in its place"),
        pytest.param(b"no end", "end", "end\n", b"no end\n", id="a last line without an end"),
    ],
)
async def test_all_other_bytes_are_kept(
    tool: EditFile, root: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    (root / "f").write_bytes(before)
    assert "Edited f" in await result(tool, path="f", old_text=old, new_text=new)
    assert (root / "f").read_bytes() == after


async def test_mode_bits_and_links_are_kept(tool: EditFile, root: Path) -> None:
    (root / "run.sh").write_text("echo a")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("run.sh")
    await result(tool, path="link", old_text="a", new_text="b")
    assert ((root / "run.sh").read_text(), (root / "run.sh").stat().st_mode & 0o777) == ("echo b", 0o755)
    assert (root / "link").is_symlink()
    assert sorted(path.name for path in root.iterdir()) == ["link", "run.sh"]


async def test_a_missing_text_is_refused_with_the_nearest_place(tool: EditFile, root: Path) -> None:
    (root / "f").write_text("def total(items):\n    return sum(items)\n\nprint(total([]))\n")
    error = await failure(tool, path="f", old_text="def total(item):\n  return sum(item)", new_text="x")
    assert error.kind == "TextNotFound"
    assert str(error) == (
        "f: old_text is not in the file; read it again and copy the text exactly, without line numbers. "
        "The nearest place is:\n1\tdef total(items):\n2\t    return sum(items)"
    )
    assert "nearest" not in str(await failure(tool, path="f", old_text="zzzzzzzzzz", new_text="x"))
    assert "nearest" not in str(await failure(tool, path="f", old_text="\n\n\n", new_text="x"))


async def test_a_text_that_is_not_unique_is_refused_with_its_lines(tool: EditFile, root: Path) -> None:
    (root / "f").write_text("x = 1\ny = 1\nz = 2\n" + "w = 1\n" * 20)
    error = await failure(tool, path="f", old_text="= 1", new_text="= 3")
    assert error.kind == "TextNotUnique"
    assert str(error) == (
        "f: old_text is in the file 22 times, in lines 1, 2, 4, 5, 6, 7, 8, 9, 10, 11 and more; "
        "add the lines around it, or set replace_all to true"
    )
    (root / "f").write_text("aaa")
    assert "2 times, in line 1;" in str(await failure(tool, path="f", old_text="aa", new_text="b"))
    assert (root / "f").read_text() == "aaa"


async def test_replace_all_replaces_every_occurrence(tool: EditFile, root: Path) -> None:
    (root / "f").write_text("aaa a\n")
    edited = await result(tool, path="f", old_text="a", new_text="aa", replace_all=True)
    assert (edited, (root / "f").read_text()) == ("Edited f (4 places, 10 bytes)", "aaaaaa aa\n")


@pytest.mark.parametrize(
    ("content", "arguments", "kind"),
    [
        pytest.param(b"a\0b", {"old_text": "a"}, "BinaryFile", id="a binary file"),
        pytest.param(b"%PDF-1.7", {"old_text": "P"}, "BinaryFile", id="a PDF"),
        pytest.param(b"a" * 5_000_001, {"old_text": "a"}, "FileTooLarge", id="a file that is too large"),
        pytest.param(b"a" * 5_000_000, {"old_text": "a", "replace_all": True}, "TooManyPlaces", id="too many places"),
        pytest.param(b"b" * 4_999_999 + b"a", {"old_text": "a", "new_text": "xx"}, "FileTooLarge", id="a large result"),
        pytest.param(b"a", {"old_text": ""}, "InvalidArguments", id="no text"),
        pytest.param(b"a", {"old_text": "x"}, "InvalidArguments", id="the same text"),
        pytest.param(b"a", {"old_text": "a\ud800"}, "InvalidArguments", id="half a character"),
        pytest.param(None, {"old_text": "a"}, "NotFound", id="no file"),
    ],
)
async def test_an_edit_that_cannot_be_made_is_refused(
    tool: EditFile, root: Path, content: bytes | None, arguments: dict[str, object], kind: str
) -> None:
    if content is not None:
        (root / "f").write_bytes(content)
    assert (await failure(tool, path="f", **{"new_text": "x", **arguments})).kind == kind
    assert not (root / "f").exists() or (root / "f").read_bytes() == content


async def test_no_folder_is_made_for_a_missing_file(tool: EditFile, root: Path) -> None:
    assert (await failure(tool, path="a/b/c", old_text="a", new_text="b")).kind == "NotFound"
    assert (await failure(tool, path=".", old_text="a", new_text="b")).kind == "IsAFolder"
    assert list(root.iterdir()) == []


ADDS_A_LINE: dict[str, Any] = {"path": "f", "old_text": "one\n", "new_text": "one\ntwo\n"}
REPLACES: dict[str, Any] = {"path": "f", "old_text": "one", "new_text": "two"}


@pytest.mark.parametrize(
    ("arguments", "after"), [(ADDS_A_LINE, "one\ntwo\n"), (REPLACES, "two\n")], ids=["old in new", "old is gone"]
)
async def test_a_repetition_after_a_lost_answer_changes_nothing(
    tmp_path: Path, root: Path, arguments: dict[str, Any], after: str
) -> None:
    (root / "f").write_text("one\n")
    await attempt(an_editor(tmp_path), **arguments)
    again = await attempt(an_editor(tmp_path), number=2, **arguments)
    assert again == "Edited f: an earlier attempt of this call has made the edit, so it was not repeated"
    assert await attempt(an_editor(tmp_path), **arguments) == again, "a rewound run counts its attempts from 1"
    assert (root / "f").read_text() == after
    assert "Edited f (" in await attempt(an_editor(tmp_path), key="k2", path="f", old_text=after[:3], new_text="x")


class Killed(BaseException):
    """The worker's process ends here."""


@pytest.mark.parametrize("arguments", [ADDS_A_LINE, REPLACES], ids=["old in new", "old is gone"])
@pytest.mark.parametrize("is_replaced", [False, True], ids=["before the file is replaced", "after it was replaced"])
async def test_an_edit_happens_once_if_the_worker_dies_in_it(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], is_replaced: bool
) -> None:
    (root / "f").write_text("one\n")
    replace = os.replace

    def die(*given: Any, **more: Any) -> None:
        if is_replaced:
            replace(*given, **more)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        with pytest.raises(Killed):
            await attempt(an_editor(tmp_path), **arguments)
    assert "Edited f" in await attempt(an_editor(tmp_path), number=2, **arguments)
    assert (root / "f").read_text() == ("one\ntwo\n" if arguments is ADDS_A_LINE else "two\n")


async def test_a_repetition_is_recognised_after_other_edits_of_the_file(tmp_path: Path, root: Path) -> None:
    (root / "f").write_text("one\nmore\n")
    await attempt(an_editor(tmp_path), **ADDS_A_LINE)
    await attempt(an_editor(tmp_path), key="k2", path="f", old_text="more", new_text="less")
    assert "was not repeated" in await attempt(an_editor(tmp_path), number=2, **ADDS_A_LINE)
    assert (root / "f").read_text() == "one\ntwo\nless\n"


async def test_an_outcome_that_nobody_can_know_is_reported(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker died in the edit, and somebody else changed the file before the next attempt."""
    (root / "f").write_text("one\n")

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        with pytest.raises(Killed):
            await attempt(an_editor(tmp_path), **ADDS_A_LINE)
    (root / "f").write_text("one\nby somebody\n")
    context = ToolContext(call_id="c1", idempotency_key="k1", attempt=2)
    with pytest.raises(ToolError, match="may have made the edit; read the file") as caught:
        await an_editor(tmp_path).call(dict(ADDS_A_LINE), context)
    assert (caught.value.kind, caught.value.acted, caught.value.retryable) == ("OutcomeUnknown", "maybe", False)
    assert (root / "f").read_text() == "one\nby somebody\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("one\n", "Edited f (line 1, 4 bytes)", id="the edit was not made"),
        pytest.param("two\n", "OutcomeUnknown", id="the edit looks made"),
        pytest.param("none\n", "Edited f (line 1, 5 bytes)", id="somebody else's text"),
        pytest.param("three\n", "TextNotFound", id="another text"),
    ],
)
async def test_a_later_attempt_on_a_machine_without_the_record_is_careful(
    tmp_path: Path, root: Path, content: str, expected: str
) -> None:
    (root / "f").write_text(content)
    assert (await attempt(an_editor(tmp_path), number=2, **REPLACES)).startswith(expected)


async def test_parallel_edits_of_a_file_are_all_made(tmp_path: Path, root: Path) -> None:
    """Each reply may contain several edits of one file, and other workers may work in the folder."""
    (root / "f").write_text("".join(f"<{n}>\n" for n in range(40)))
    workers = [an_editor(tmp_path) for _ in range(4)]
    calls = [attempt(workers[n % 4], key=f"k{n}", path="f", old_text=f"<{n}>", new_text=f"[{n}]") for n in range(40)]
    assert all("Edited" in each for each in await asyncio.gather(*calls))
    assert (root / "f").read_text() == "".join(f"[{n}]\n" for n in range(40))


async def test_a_folder_that_another_process_locks_for_long_is_reported(
    tool: EditFile, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_changes, "LOCK_WAIT_S", 0.05)
    (root / "f").write_text("one\n")
    holder = os.open(root, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    try:
        error = await failure(tool, **REPLACES)
    finally:
        os.close(holder)
    assert (error.kind, error.retryable, error.acted) == ("FileBusy", True, "no")
    assert await attempt(tool, number=2, **REPLACES) == "Edited f (line 1, 4 bytes)"


async def test_records_that_cannot_be_kept_prevent_the_edit(tmp_path: Path, root: Path) -> None:
    (tmp_path / "home").write_text("a file, no folder")
    (root / "f").write_text("one\n")
    error = await failure(an_editor(tmp_path), **REPLACES)
    assert (error.kind, error.retryable) == ("RecordError", True)
    assert (root / "f").read_text() == "one\n"


async def test_a_cancelled_edit_never_takes_effect_later(
    tool: EditFile, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "f").write_text("one\n")
    sync = Held(os.fsync)
    monkeypatch.setattr(os, "fsync", sync)
    call = asyncio.create_task(result(tool, **REPLACES))
    assert await asyncio.to_thread(sync.is_reached.wait, PATIENCE_S)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    sync.may_go_on.set()
    async with asyncio.timeout(PATIENCE_S):
        while len(list(root.iterdir())) > 1:  # the temporary file of the cancelled edit
            await asyncio.sleep(0.01)
    assert (root / "f").read_text() == "one\n"
