"""Issues and pull requests as text for a model; bounded."""

from collections.abc import Iterable
from typing import Any

from orga.activities.adapters.tools.github_reference import NumberedItem
from orga.activities.adapters.tools.page_text import visible
from orga.activities.sanitize_markup import without_comments

MAX_BYTES = 16_000
_MAX_BODY = 6_000
_MAX_COMMENT = 1_500
_MAX_FILES = 100
COMMENTS_A_PAGE = 30


def issue_text(item: NumberedItem, issue: dict[str, Any], comments: list[Any], page: int) -> str:
    """Return an issue with one page of its comments."""
    note = ["It is a pull request: read_pull_request shows its files."] if issue.get("pull_request") else []
    lines = [*_head("Issue", item, issue, str(issue.get("state", ""))), *note, "", _body(issue)]
    return _shown([*lines, *_comments(issue, comments, page)])


def pull_request_text(
    item: NumberedItem, pull: dict[str, Any], files: list[Any], comments: list[Any], page: int
) -> str:
    """Return a pull request with its changed files and one page of its comments."""
    state = "merged" if pull.get("merged") else ("draft" if pull.get("draft") else str(pull.get("state", "")))
    branches = f"Branches: {_of(pull, 'head', 'ref')} into {_of(pull, 'base', 'ref')}"
    lines = [*_head("Pull request", item, pull, state), branches, "", _body(pull)]
    return _shown([*lines, *_files(pull, files), *_comments(pull, comments, page)])


def _head(kind: str, item: NumberedItem, issue: dict[str, Any], state: str) -> list[str]:
    lines = [f"{kind} {item}: {_line(issue.get('title'))}", f"State: {state}; author: {_of(issue, 'user', 'login')}"]
    labels = [_line(label.get("name")) for label in _objects(issue.get("labels"))]
    return [*lines, f"Labels: {', '.join(labels)}"] if labels else lines


def _body(issue: dict[str, Any]) -> str:
    return _cut(issue.get("body"), _MAX_BODY) or "(no text)"


def _files(pull: dict[str, Any], files: list[Any]) -> list[str]:
    shown = _objects(files)[:_MAX_FILES]
    total = pull.get("changed_files", len(shown))
    lines = ["", f"Changed files: {total}, {_changes(pull)}"]
    lines += [f"- {_line(file.get('filename'))} ({_line(file.get('status'))}, {_changes(file)})" for file in shown]
    return [*lines, f"- and {total - len(shown)} more"] if isinstance(total, int) and total > len(shown) else lines


def _changes(counted: dict[str, Any]) -> str:
    return f"+{counted.get('additions', '?')} -{counted.get('deletions', '?')}"


def _comments(issue: dict[str, Any], comments: list[Any], page: int) -> list[str]:
    total = issue.get("comments", len(comments))
    shown = _objects(comments)
    if not shown:
        return ["", f"Comments: {total}" + (f", none on page {page}" if total else "")]
    first = (page - 1) * COMMENTS_A_PAGE + 1
    lines = ["", f"Comments {first}-{first + len(shown) - 1} of {total}:"]
    for comment in shown:
        who = f"{_of(comment, 'user', 'login')}, {_line(comment.get('created_at'))}:"
        lines += ["", who, _cut(comment.get("body"), _MAX_COMMENT)]
    return lines


def _shown(lines: Iterable[str]) -> str:
    """Return the lines, at most as many bytes of them as a result may have."""
    text = "\n".join(lines)
    shown = text.encode()[:MAX_BYTES].decode(errors="ignore")
    if len(shown) == len(text):
        return text
    return f"{shown}\n[cut at {MAX_BYTES:,} bytes; a higher page has fewer comments or later ones]"


def _cut(value: Any, limit: int) -> str:
    text = _without_comments(visible(value)).strip() if isinstance(value, str) else ""
    return text if len(text) <= limit else f"{text[:limit]}\n[cut at character {limit} of {len(text)}]"


def _without_comments(text: str) -> str:
    """Return Markdown without HTML comments, which readers of the page never see, and with how many there were."""
    text, count = without_comments(text)
    return f"{text.strip()}\n[{count} hidden comments left out]" if count else text


def _line(value: Any) -> str:
    return " ".join(visible(value).split())[:300] if isinstance(value, str) else "unknown"


def _of(issue: dict[str, Any], key: str, field: str) -> str:
    found = _objects([issue.get(key)])
    return _line(found[0].get(field)) if found else "unknown"


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []  # pyright: ignore
