"""The pages of the reference, each from its source of truth in the code."""

from pathlib import Path

from docs.generate.api import api_page
from docs.generate.commands import commands_page
from docs.generate.configuration import configuration_page
from docs.generate.tables import attributes_page, events_page

FOLDER = Path(__file__).resolve().parents[1] / "reference"
MADE = "<!-- Made by `make reference` from the code; what is changed here is lost. -->\n\n"


def pages() -> dict[str, str]:
    """Return the text of each page, by file name."""
    made = {
        "api.md": api_page(),
        "commands.md": commands_page(),
        "configuration.md": configuration_page(),
        "journal-events.md": events_page(),
        "search-attributes.md": attributes_page(),
    }
    return {name: MADE + text.rstrip() + "\n" for name, text in made.items()}
