"""The shell and the files of the console's pages, and Markdown as a tree."""

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from orga.client.console.doors import SECURITY_HEADERS
from orga.client.console.markdown import MAX_TEXT, ROUTES, Node, Texts, markdown_tree
from orga.client.console.pages import STATIC, page_routes
from orga.client.console.problems import Problem, handle_problem
from orga.client.console.routes import Call

HOSTILE = "</script><script>alert(1)</script><!-- & \u2028"


async def _hostile(request: Request) -> JSONResponse:
    return JSONResponse({"items": [HOSTILE], "asked": str(request.url.query)})


@pytest.fixture(scope="module")
def pages() -> TestClient:
    routes = [Mount("/api/v1", routes=[Route("/runs", _hostile)]), *page_routes()]
    app = Starlette(routes=routes, exception_handlers={Problem: handle_problem})
    app.state.error_forms = {}
    return TestClient(app)


def test_the_first_data_of_a_page_are_the_answers_of_the_interface(pages: TestClient) -> None:
    shell = pages.get("/?agent=a&text=x").text
    [block] = re.findall(r'<script type="application/json" id="first">(.*?)</script>', shell, re.DOTALL)
    assert not set("<>&\u2028") & set(block)
    assert json.loads(block) == {"/runs?agent=a&text=x": {"items": [HOSTILE], "asked": "agent=a&text=x"}}


def test_a_page_runs_no_inline_script_and_takes_no_markup_from_its_address(pages: TestClient) -> None:
    answer = pages.get("/?text=%3Cscript%3Ealert(1)%3C/script%3E")
    assert "<script>" not in answer.text
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy


def test_a_browser_gets_a_problem_as_a_page_and_a_program_as_json(pages: TestClient) -> None:
    page = pages.get("/static/old/none.js", headers={"accept": "text/html,*/*"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "<p>there is no such file</p>" in page.text
    assert pages.get("/static/old/none.js").json()["detail"] == "there is no such file"


def test_files_have_strong_tags_and_stay_until_they_change(pages: TestClient) -> None:
    [address] = re.findall(r'href="([^"]*app\.css)"', pages.get("/").text.replace("&#x2f;", "/"))
    plain = pages.get(address, headers={"accept-encoding": "identity"})
    zipped = pages.get(address)
    assert plain.headers["content-type"].startswith("text/css")
    assert "immutable" in plain.headers["cache-control"]
    assert plain.headers["etag"] != zipped.headers["etag"]
    assert int(zipped.headers["content-length"]) < len(zipped.text) / 2
    assert pages.get(address, headers={"if-none-match": zipped.headers["etag"]}).status_code == 304
    old = re.sub(r"/static/\w+/", "/static/old/", address)
    assert pages.get(old).headers["cache-control"] == "no-cache"
    assert pages.get("/static/old/..%2fpages.py").status_code == 404
    assert pages.get("/static/old/shell.html").status_code == 404


def _is_comment(lines: list[str]) -> list[bool]:
    """Whether each line belongs to a comment that has its lines to itself."""
    found: list[bool] = []
    is_within = False
    for line in map(str.strip, lines):
        begins = line.startswith("/*") and (line.endswith("*/") or "*/" not in line)
        found.append(is_within or begins or line.startswith("//"))
        is_within = (is_within or begins) and "*/" not in line
    return found


def test_scripts_are_served_without_comments_but_with_all_lines(pages: TestClient) -> None:
    for path in sorted(STATIC.rglob("*.js")):
        lines = path.read_text().splitlines()
        code = ["" if comment else line for line, comment in zip(lines, _is_comment(lines), strict=True)]
        assert code != lines
        assert pages.get(f"/static/any/{path.relative_to(STATIC).as_posix()}").text.splitlines() == code, path


SINKS = re.compile(
    r"(inner|outer)HTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|setHTML|srcdoc|javascript:"
    r"|\beval\(|new Function|setAttribute\(\"style"
)
"""Ways to make markup or code of a text."""


def test_no_script_makes_markup_or_code_of_a_text() -> None:
    found = {path.name: SINKS.search(path.read_text()) for path in STATIC.rglob("*.js")}
    assert found
    assert [name for name, match in found.items() if match] == []


def test_no_page_names_another_host() -> None:
    known = {"http://www.w3.org/2000/svg"}
    for path in filter(Path.is_file, STATIC.rglob("*")):
        assert set(re.findall(r"https?://[\w./-]+", path.read_text())) <= known, path.name


def elements(nodes: list[Node]) -> list[dict[str, Any]]:
    """Return all elements of a tree."""
    found = [node for node in nodes if not isinstance(node, str)]
    return found + [inner for node in found for inner in elements(node["children"])]


def text_of(nodes: list[Node]) -> str:
    return "".join(node if isinstance(node, str) else text_of(node["children"]) for node in nodes)


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "a <b onclick=alert(1)>c</b>",
        "![picture](http://192.0.2.1/x.png)",
        "[a](javascript:alert(1))",
        "[a](  JaVaScRiPt:alert(1))",
        "[a](&#106;avascript:alert(1))",
        "[a](data:text/html,<script>alert(1)</script>)",
        "[a](//192.0.2.1/x)",
        "[a](/admin)",
        "<javascript:alert(1)>",
        "[a]: javascript:alert(1)\n\n[a]",
    ],
)
def test_markup_of_a_text_stays_text(text: str) -> None:
    kinds = {each["kind"] for each in elements(markdown_tree(text))}
    links = [each["href"] for each in elements(markdown_tree(text)) if each["kind"] == "a"]
    assert kinds <= {"p", "a"}
    assert links in ([], ["http://192.0.2.1/x.png"])


def test_markdown_becomes_elements() -> None:
    text = "# Title\n\n1. *one*\n2. **two** `three`\n\n> [four](https://a.b/c)\n\n|a|\n|-|\n|~~5~~|\n\n```py\nsix\n```\n---"
    found = elements(markdown_tree(text))
    assert {each["kind"] for each in found} >= {"h1", "ol", "li", "em", "strong", "code", "blockquote"}
    assert {each["kind"] for each in found} >= {"a", "table", "th", "td", "s", "pre", "hr"}
    assert next(each for each in found if each["kind"] == "pre") == {
        "kind": "pre",
        "language": "py",
        "children": ["six\n"],
    }


@pytest.mark.parametrize(
    "text", [">" * 5_000 + "x", "*a " * 5_000, "[" * 3_000, "- " * 500 + "x", "`" * 9_999, "**a*" * 2_000]
)
def test_deep_text_has_a_bounded_tree(text: str) -> None:
    json.dumps(markdown_tree(text))


def test_the_rest_of_a_long_text_is_plain() -> None:
    tree = markdown_tree("a" * MAX_TEXT + "*b*")
    assert text_of(tree) == "a" * MAX_TEXT + "*b*"


async def test_a_text_that_takes_long_to_parse_delays_nobody() -> None:
    [route] = ROUTES
    call = cast("Call[Texts]", SimpleNamespace(given=Texts(texts=["[a\n" * 4_000])))
    answering, turns = asyncio.ensure_future(route.answer(call)), 0
    while not answering.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
