"""A run's report shows everything from the run as text: no script, no link, no closed fence, no escape."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from markdown_it import MarkdownIt

from orga.client.cli.inspect.report import RunReport, build_report, html, markdown
from orga.client.cli.main import run_command
from orga.workflows.types.status import AgentResult, JournalEntry

T0 = datetime(2026, 11, 23, 21, 0, tzinfo=UTC)

HOSTILE = (
    "</pre><script>alert(1)</script><img src=https://evil.example/x onerror=alert(2)>\n"
    "```\n# gone\n[click](https://evil.example) ![x](https://evil.example/p.png) <b>bold</b> | cell |\n````\n"
    '\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\ \x1b[2J\u202e "quoted" &amp; '
    "https://evil.example www.evil.example"
)


def entry(at_s: float, iteration: int, event: str, **data: Any) -> JournalEntry:
    at = T0 + timedelta(seconds=at_s)
    return JournalEntry(
        sequence=0, timestamp=at, agent="default", iteration=iteration, event=event, data=data, hash="h"
    )


def a_report(hostile: str, ended: AgentResult | None = None) -> RunReport:
    return build_report(
        "agent-1",
        [
            entry(0, 0, "Started", task=hostile),
            entry(0.5, 0, "Prepared", model=hostile, tools={"read_file": "d"}, policy="default"),
            entry(
                1,
                1,
                "ReasoningComplete",
                finish="tool_calls",
                actions=[{"call_id": "c", "tool": "read_file", "arguments": {"path": hostile}}],
            ),
            entry(2, 1, "PolicyEvaluated", verdicts=[{"decision": "deny", "reason": hostile}]),
            entry(3, 1, "DelegationStarted", workflow_id="child", agent=hostile, task=hostile),
            entry(4, 1, "Started", run="child", task=hostile),
            entry(5, 2, "ReasoningComplete", finish="stop", actions=[{"respond": hostile}]),
            entry(6, 2, hostile, detail=hostile),
        ],
        ended,
    )


def a_result(output: str) -> AgentResult:
    return AgentResult.model_validate(
        {
            "output": output,
            "data": None,
            "iterations": 2,
            "termination": {"reason": "completed", "detail": ""},
            "duration_s": 6.0,
            "usage": {"total_tokens": 12_345, "model_calls": 2, "cost_usd": 0.5},
            "tool_calls": {"proposed": 1, "run": 0, "denied": 1, "failed": 0},
            "conversation_digest": "",
        }
    )


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= set(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_has_only_its_own_tags_and_loads_nothing() -> None:
    page = _Page()
    page.feed(text := html(a_report(HOSTILE, a_result(HOSTILE))))
    own = "html head meta title style body h1 h2 pre table tr th td ol li span div details summary"
    assert page.tags <= set(own.split())
    assert {name for name, _ in page.attributes} <= {"lang", "charset", "http-equiv", "content", "name", "class"}
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert "<script>alert(1)</script>" in page.text
    assert not re.search("[\x1b\u202e]", text)


def test_markdown_has_no_link_picture_or_html_and_closes_every_fence() -> None:
    text = markdown(a_report(HOSTILE, a_result(HOSTILE)))
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    kinds = {token.type for token in tokens} | {child.type for token in tokens for child in token.children or ()}
    assert not kinds & {"link_open", "image", "html_block", "html_inline", "code_block"}
    headings = [tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open"]
    assert headings == ["Run agent-1", "Task", "Answer", "Facts", "What it did", "Start", "Iteration 1", "Iteration 2"]
    assert not re.search(
        "[\x1b\u202e]|https?://evil.example(?![^`]*```)", text.split("## What it did")[0].split("## Facts")[1]
    )


@pytest.mark.parametrize("form", [html, markdown])
def test_a_report_shows_task_answer_facts_and_every_step(form: Any) -> None:
    text = form(a_report("Which limits?", a_result("Five.")))
    for expected in (
        "Which limits?",
        "Five.",
        "completed",
        "12,345",
        "0.5000 USD",
        "Iteration 1",
        "denied",
        "+3.000 s",
    ):
        assert expected in text, expected


@pytest.mark.parametrize("form", [html, markdown])
def test_a_run_that_has_not_ended_has_a_report(form: Any) -> None:
    text = form(a_report("x"))
    assert "There is none." in text
    assert "not ended yet" in text
    assert "failed: no such agent" in form(build_report("a", [], None, "failed: no such agent"))


def test_a_report_cannot_be_combined_with_other_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["journal", "x", "--html", "--json"]) == 2
    assert "cannot be combined with other options" in capsys.readouterr().err
