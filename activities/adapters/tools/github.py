"""The `read_issue` and `read_pull_request` tools for GitHub. They take references such as `#42`."""

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import Field
from pydantic_core import from_json

from orga.activities.adapters.http import (
    ACCEPTED_ENCODINGS,
    TRANSIENT_STATUSES,
    URL,
    AsyncClient,
    HTTPError,
    Response,
    TimeoutException,
)
from orga.activities.adapters.tools.guarded_http import (
    PublicBackend,
    Resolve,
    bounded_body,
    final_response,
    guarded_client,
    is_same_server,
    system_addresses,
)
from orga.activities.adapters.tools.page_text import visible_text
from orga.activities.adapters.tools.parameters import Parameters
from orga.activities.ports import ToolContext, ToolError
from orga.activities.text.hidden_markup import without_comments
from orga.workflows.types.json_text import as_object, as_objects
from orga.workflows.types.tool_calls.tools import ToolOutput

_REFERENCE = re.compile(
    r"\s*(?:(?:PR|issue|pull request)\b\s*)?"
    r"(?:(?P<owner>[a-z0-9][a-z0-9-]{0,38})/(?P<name>(?!\.{1,2}#)[a-z0-9_.-]{1,100}))?#?(?P<number>[0-9]{1,10})\s*",
    re.I | re.ASCII,
)
REFERENCE_DESCRIPTION = "`#42` in the default repository, or `owner/name#42`."


@dataclass(frozen=True)
class NumberedItem:
    """An issue or pull request of a repository."""

    repo: str
    number: int

    @property
    def path(self) -> str:
        """The path of the repository in GitHub's API."""
        return f"/repos/{self.repo}"

    def __str__(self) -> str:
        return f"{self.repo}#{self.number}"


def parse_reference(reference: str, default_repo: str | None) -> NumberedItem:
    """Return the item. Raise ToolError (InvalidArguments) if the text is no reference, or its repository is unknown."""
    match = _REFERENCE.fullmatch(reference)
    if match is None or (match["owner"] and "#" not in reference):
        why = f"{reference[:80]!r} is no reference; write #42 or owner/name#42"
        raise ToolError(why, kind="InvalidArguments")
    repo = f"{match['owner']}/{match['name']}" if match["owner"] else default_repo
    if repo is None:
        why = f"{reference[:80]!r} names no repository; write owner/name#{match['number']}, or set [tools.github] repo"
        raise ToolError(why, kind="InvalidArguments")
    return NumberedItem(repo, int(match["number"]))


_DEADLINE_S = 20.0
_MAX_ANSWER_BYTES = 4_000_000
_HEADERS = {
    "user-agent": "orga/0.1",
    "accept": "application/vnd.github+json",
    "accept-encoding": ACCEPTED_ENCODINGS,
    "x-github-api-version": "2022-11-28",
}


@dataclass(frozen=True)
class GitHubSettings:
    """GitHub's address and token, and the default repository, which `#42` alone refers to."""

    base_url: str = "https://api.github.com"
    repo: str | None = None
    """`owner/name`."""
    token: str | None = field(default=None, repr=False)


class GitHubApi:
    """Reads data that the token may see. Without a token, it reads public data."""

    def __init__(self, settings: GitHubSettings, resolve: Resolve = system_addresses) -> None:
        self._base = URL(settings.base_url.rstrip("/"))
        usual_port = 443 if self._base.scheme == "https" else 80
        # The operator named this server, so its address may be private. Redirects to another one are not followed.
        self._backend = PublicBackend([f"{self._base.host}:{self._base.port or usual_port}"], resolve)
        self._headers = _HEADERS | ({"authorization": f"Bearer {settings.token}"} if settings.token else {})
        self._has_token = bool(settings.token)

    async def get(self, *paths: str) -> list[Any]:
        """Return the JSON of each path, in order. All paths are read in parallel, within 20 seconds."""
        try:
            async with asyncio.timeout(_DEADLINE_S), guarded_client(self._backend) as client:
                return await asyncio.gather(*(self._get_one(client, path) for path in paths))
        except (TimeoutError, TimeoutException) as error:
            why = f"GitHub at {self._base.host} gave no full answer in time; try again later"
            raise ToolError(why, kind="Timeout", retryable=True) from error
        except HTTPError as error:
            why = f"GitHub at {self._base.host}: {str(error) or type(error).__name__}"
            raise ToolError(why, kind="ConnectionFailed", retryable=True) from error

    async def _get_one(self, client: AsyncClient, path: str) -> Any:
        def moved_url(url: URL, location: str) -> URL:
            """Return the new address of a moved repository. Refuse another server, which would get the token."""
            moved = url.join(location)
            if not is_same_server(moved, self._base):
                raise ToolError(f"{path}: redirected to another server, {moved.host}; not followed", kind="BadRedirect")
            return moved

        async with final_response(
            URL(f"{self._base}{path}"),
            lambda url: client.stream("GET", url, headers=self._headers),
            moved_url,
        ) as response:
            if not response.is_success:
                raise self._refusal(response, path)
            body, is_cut = await bounded_body(response, _MAX_ANSWER_BYTES)
        if is_cut:
            raise ToolError(f"{path}: the answer is larger than {_MAX_ANSWER_BYTES:,} bytes", kind="TooLarge")
        try:
            return from_json(body)
        except ValueError as error:
            raise ToolError(f"{path}: the answer is no JSON; is base_url GitHub's API?", kind="BadReply") from error

    def _refusal(self, response: Response, path: str) -> ToolError:
        status, headers = response.status_code, response.headers
        has_limit_header = "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"
        if status == 429 or (status == 403 and has_limit_header):
            more = "" if self._has_token else "; a GITHUB_TOKEN on the worker raises it"
            return ToolError(f"{path}: GitHub's rate limit is reached{more}; try again later", kind="RateLimited")
        if known := _REFUSALS.get(status):
            kind, why = known
            return ToolError(f"{path}: {status}, {why}", kind=kind)
        kind, is_transient = f"Http{status}", status in TRANSIENT_STATUSES
        return ToolError(f"{path}: GitHub answered {status}", kind=kind, retryable=is_transient)


_REFUSALS = {
    401: ("AuthenticationFailed", "GitHub does not accept the worker's GITHUB_TOKEN; the operator has to renew it"),
    403: ("PermissionDenied", "the worker's GITHUB_TOKEN may not read this; use another source"),
    404: ("NotFound", "there is no such thing, or a private one that the worker's GITHUB_TOKEN, if any, may not see"),
    410: ("NotFound", "it was deleted"),
}


MAX_OUTPUT_BYTES = 16_000
_BODY_CHARS = 6_000
_COMMENT_CHARS = 1_500
_MAX_FILES = 100
_ALL_DIFFS_CHARS = 6_000
"""Characters of all diffs together, unless the call names one file."""
_FILE_DIFF_CHARS = 12_000
"""Characters of the diff of the file that a call names."""
COMMENTS_PER_PAGE = 30


Json = dict[str, Any]


def _pull_request_lines(item: NumberedItem, pull: Json, files: list[Json]) -> list[str]:
    state = next((state for state in ("merged", "draft") if pull.get(state)), str(pull.get("state", "")))
    branches = f"Branches: {_nested_field(pull, 'head', 'ref')} into {_nested_field(pull, 'base', 'ref')}"
    lines = [*_heading_lines("Pull request", item, pull, state), branches, "", _body_text(pull)]
    return [*lines, *_file_lines(pull, files), *_diff_lines(files)]


def _file_diff_lines(item: NumberedItem, pull: Json, files: list[Json], name: str) -> list[str]:
    """Return the diff of one file. Raise ToolError if the pull request does not change the file."""
    file = next((file for file in files if file.get("filename") == name), None)
    if file is None:
        names = ", ".join(_one_line_text(each.get("filename")) for each in files[:20])
        raise ToolError(f"{item} does not change {name[:200]!r}; it changes {names}", kind="NotFound")
    return [f"Pull request {item}: {_one_line_text(pull.get('title'))}", *_one_diff(file, _FILE_DIFF_CHARS)]


def _heading_lines(kind: str, item: NumberedItem, issue: Json, state: str) -> list[str]:
    lines = [
        f"{kind} {item}: {_one_line_text(issue.get('title'))}",
        f"State: {state}; author: {_nested_field(issue, 'user', 'login')}",
    ]
    labels = [_one_line_text(label.get("name")) for label in as_objects(issue.get("labels"))]
    return [*lines, f"Labels: {', '.join(labels)}"] if labels else lines


def _body_text(issue: Json) -> str:
    return _cut_text(issue.get("body"), _BODY_CHARS) or "(no text)"


def _file_lines(pull: Json, files: list[Json]) -> list[str]:
    shown = files[:_MAX_FILES]
    total = pull.get("changed_files", len(shown))
    lines = ["", f"Changed files: {total}, {_change_counts(pull)}"]
    for file in shown:
        name, status = _one_line_text(file.get("filename")), _one_line_text(file.get("status"))
        lines.append(f"- {name} ({status}, {_change_counts(file)})")
    if isinstance(total, int) and total > len(shown):
        lines.append(f"- and {total - len(shown)} more")
    return lines


def _diff_lines(files: list[Json]) -> list[str]:
    """Return the diffs that fit into the limit, in order, and the names of the files whose diffs do not fit."""
    lines, room, left_out = list[str](), _ALL_DIFFS_CHARS, list[str]()
    for file in files[:_MAX_FILES]:
        diff = _one_diff(file, _FILE_DIFF_CHARS)
        size = sum(len(line) + 1 for line in diff)
        if size > room:
            left_out.append(_one_line_text(file.get("filename")))
        else:
            lines += diff
            room -= size
    if not left_out:
        return lines
    return [*lines, "", f"Diffs left out: {', '.join(left_out[:20])}. Read one by giving its name as `file`."]


def _one_diff(file: Json, limit: int) -> list[str]:
    patch = file.get("patch")
    text = visible_text(patch) if isinstance(patch, str) else "(no diff: a binary file, or too large for GitHub)"
    cut = "" if len(text) <= limit else f"\n[cut at character {limit} of {len(text)}]"
    return ["", f"Diff of {_one_line_text(file.get('filename'))}:", f"{text[:limit]}{cut}"]


def _review_lines(reviews: list[Json]) -> list[str]:
    """Return each review that has a verdict or a text of its own."""
    lines = list[str]()
    for review in reviews:
        body, state = _cut_text(review.get("body"), _COMMENT_CHARS), _one_line_text(review.get("state")).lower()
        if body or state not in {"commented", "pending", "unknown"}:
            lines += [f"- {_nested_field(review, 'user', 'login')}: {state.replace('_', ' ')}", *filter(None, [body])]
    return ["", "Reviews:", *lines] if lines else []


def _review_comment_lines(comments: list[Json]) -> list[str]:
    if not comments:
        return []
    lines = ["", "Review comments:"]
    for index, comment in enumerate(comments):
        line = comment.get("line") or comment.get("original_line")
        position = f"{_one_line_text(comment.get('path'))}:{line if isinstance(line, int) else '?'}"
        outdated = "" if comment.get("line") else " (outdated)"
        lines += [""] if index else []
        lines.append(f"{_nested_field(comment, 'user', 'login')} on {position}{outdated}:")
        lines.append(_cut_text(comment.get("body"), _COMMENT_CHARS))
    return lines


def _change_counts(counted: Json) -> str:
    return f"+{counted.get('additions', '?')} -{counted.get('deletions', '?')}"


def _comment_lines(issue: Json, comments: Any, page: int) -> list[str]:
    shown = as_objects(comments)
    total = issue.get("comments", len(shown))
    if not shown:
        return ["", f"Comments: {total}" + (f", none on page {page}" if total else "")]
    first = (page - 1) * COMMENTS_PER_PAGE + 1
    lines = ["", f"Comments {first}-{first + len(shown) - 1} of {total}:"]
    for comment in shown:
        who = f"{_nested_field(comment, 'user', 'login')}, {_one_line_text(comment.get('created_at'))}:"
        lines += ["", who, _cut_text(comment.get("body"), _COMMENT_CHARS)]
    return lines


def _bounded_output(lines: Iterable[str]) -> ToolOutput:
    text = "\n".join(lines)
    shown = text.encode()[:MAX_OUTPUT_BYTES].decode(errors="ignore")
    cut = f"\n[cut at {MAX_OUTPUT_BYTES:,} bytes; a higher page shows later comments]"
    return ToolOutput(content=text if len(shown) == len(text) else shown + cut)


def _cut_text(value: Any, limit: int) -> str:
    """Return Markdown, cut to `limit`. A note replaces HTML comments, because readers on GitHub do not see them."""
    text, count = without_comments(visible_text(value)) if isinstance(value, str) else ("", 0)
    text = f"{text.strip()}\n[{count} hidden comments left out]" if count else text.strip()
    return text if len(text) <= limit else f"{text[:limit]}\n[cut at character {limit} of {len(text)}]"


def _one_line_text(value: Any) -> str:
    return " ".join(visible_text(value).split())[:300] if isinstance(value, str) else "unknown"


def _nested_field(issue: Json, key: str, field: str) -> str:
    return _one_line_text(as_object(issue.get(key)).get(field))


class _ReferenceParameters(Parameters):
    reference: str = Field(min_length=1, max_length=200, description=REFERENCE_DESCRIPTION)
    page: int = Field(default=1, ge=1, le=1_000, description=f"Page of the comments, {COMMENTS_PER_PAGE} each.")


def _default_repo_text(repo: str | None) -> str:
    return f" The default repository is {repo}." if repo else ""


class ReadIssue:
    """Reads an issue: title, state, author, text, comments."""

    def __init__(self, api: GitHubApi, repo: str | None) -> None:
        self._api = api
        self._repo = repo
        what = "Read a GitHub issue: title, state, author, text and comments." + _default_repo_text(repo)
        self.spec = _ReferenceParameters.tool_spec("read_issue", "read_only", what)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        parameters = _ReferenceParameters.parse(arguments)
        item = parse_reference(parameters.reference, self._repo)
        path, page = f"{item.path}/issues/{item.number}", parameters.page
        issue, comments = await self._api.get(path, _comments_path(item, page))
        issue = _checked_object(item, issue)
        note = ["It is a pull request: read_pull_request shows its files."] if issue.get("pull_request") else []
        lines = [*_heading_lines("Issue", item, issue, str(issue.get("state", ""))), *note, "", _body_text(issue)]
        return _bounded_output([*lines, *_comment_lines(issue, comments, page)])


class _PullRequestParameters(_ReferenceParameters):
    file: str = Field(default="", max_length=1_000, description="Only this changed file: its whole diff and comments.")


class ReadPullRequest:
    """Reads a pull request: the same parts as of an issue, the changed files with their diffs, and the reviews."""

    def __init__(self, api: GitHubApi, repo: str | None) -> None:
        self._api = api
        self._repo = repo
        what = (
            "Read a GitHub pull request: title, state, author, branches, text, changed files with their diffs, "
            "reviews, review comments and comments."
        )
        self.spec = _PullRequestParameters.tool_spec("read_pull_request", "read_only", what + _default_repo_text(repo))

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        parameters = _PullRequestParameters.parse(arguments)
        item = parse_reference(parameters.reference, self._repo)
        path, page = f"{item.path}/pulls/{item.number}", parameters.page
        pull, files, reviews, review_comments, comments = await self._api.get(
            path,
            f"{path}/files?per_page={_MAX_FILES}",
            f"{path}/reviews?per_page=100",
            f"{path}/comments?per_page={COMMENTS_PER_PAGE}&page={page}",
            _comments_path(item, page),
        )
        pull, files, review_comments = _checked_object(item, pull), as_objects(files), as_objects(review_comments)
        if name := parameters.file:
            on_file = [each for each in review_comments if each.get("path") == name]
            return _bounded_output([*_file_diff_lines(item, pull, files, name), *_review_comment_lines(on_file)])
        lines = [*_pull_request_lines(item, pull, files), *_review_lines(as_objects(reviews))]
        lines += [*_review_comment_lines(review_comments), *_comment_lines(pull, comments, page)]
        return _bounded_output(lines)


def _comments_path(item: NumberedItem, page: int) -> str:
    return f"{item.path}/issues/{item.number}/comments?per_page={COMMENTS_PER_PAGE}&page={page}"


def _checked_object(item: NumberedItem, value: Any) -> Json:
    if not isinstance(value, dict):
        raise ToolError(f"{item}: the answer is no issue; is base_url GitHub's API?", kind="BadReply")
    return cast("Json", value)
