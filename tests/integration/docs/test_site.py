"""The documents as a site: each page is in the contents, each link works, and nothing is loaded from outside."""

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
SITE = ROOT / ".cache" / "site"


def test_the_site_is_built_and_loads_nothing_from_outside() -> None:
    made = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    pages = sorted(SITE.glob("**/*.html"))
    assert {"index.html", "goals.html", "ARCHITECTURE.html"} <= {page.name for page in pages}
    for page in pages:
        loaded = re.findall(r'<(?:script|img)[^>]* src="(http[^"]+)|<link[^>]* href="(http[^"]+)', page.read_text())
        assert loaded == [], page.name


def test_every_guide_is_in_the_contents_and_in_the_index() -> None:
    contents = (ROOT / "zensical.toml").read_text()
    index = (ROOT / "docs" / "index.md").read_text()
    tomllib.loads(contents)
    guides = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert {name for name in guides if f'"docs/{name}"' not in contents} == set()
    assert {name for name in guides if f"({name})" not in index} == set()
