"""The `read_issue` and `read_pull_request` tools."""

from typing import Any, cast

from pydantic import Field

from orga.activities.adapters.tools.github_api import GitHubApi
from orga.activities.adapters.tools.github_reference import DESCRIPTION, NumberedItem, item_of
from orga.activities.adapters.tools.github_text import COMMENTS_A_PAGE, issue_text, pull_request_text
from orga.activities.adapters.tools.parameters import Parameters
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.tools import ToolOutput, ToolSpec


class _Parameters(Parameters):
    reference: str = Field(min_length=1, max_length=200, description=DESCRIPTION)
    page: int = Field(default=1, ge=1, le=1_000, description=f"Page of the comments, {COMMENTS_A_PAGE} each.")


class ReadIssue:
    """An issue: title, state, author, text, comments."""

    def __init__(self, api: GitHubApi, repo: str | None) -> None:
        """Read `#42` in `repo`."""
        self._api = api
        self._repo = repo

    @property
    def spec(self) -> ToolSpec:
        """Read-only; calls are told apart by `reference`."""
        return _spec("read_issue", "Read a GitHub issue: title, state, author, text and comments.", self._repo)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the issue as text."""
        parameters = _Parameters.parse(arguments)
        item = item_of(parameters.reference, self._repo)
        issue, comments = await self._api.get(f"{item.path}/issues/{item.number}", _comments(item, parameters.page))
        return ToolOutput(content=issue_text(item, _object(item, issue), _list(comments), parameters.page))


class ReadPullRequest:
    """A pull request: what an issue has, and the changed files."""

    def __init__(self, api: GitHubApi, repo: str | None) -> None:
        """Read `#55` in `repo`."""
        self._api = api
        self._repo = repo

    @property
    def spec(self) -> ToolSpec:
        """Read-only; calls are told apart by `reference`."""
        what = "Read a GitHub pull request: title, state, author, branches, text, changed files and comments."
        return _spec("read_pull_request", what, self._repo)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the pull request as text."""
        parameters = _Parameters.parse(arguments)
        item = item_of(parameters.reference, self._repo)
        path = f"{item.path}/pulls/{item.number}"
        pull, files, comments = await self._api.get(
            path, f"{path}/files?per_page=100", _comments(item, parameters.page)
        )
        text = pull_request_text(item, _object(item, pull), _list(files), _list(comments), parameters.page)
        return ToolOutput(content=text)


def _spec(name: str, description: str, repo: str | None) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=f"{description} The default repository is {repo}." if repo else description,
        parameters=_Parameters.json_schema(),
        effect="read_only",
        main_argument="reference",
    )


def _comments(item: NumberedItem, page: int) -> str:
    return f"{item.path}/issues/{item.number}/comments?per_page={COMMENTS_A_PAGE}&page={page}"


def _object(item: NumberedItem, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ToolError(f"{item}: the answer is no issue; is base_url GitHub's API?", kind="BadReply")
    return cast("dict[str, Any]", value)


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
