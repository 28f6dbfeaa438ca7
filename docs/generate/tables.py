"""The events of a journal and the search attributes, each a table."""

from docs.generate.source import docstring_text, in_cell, module
from orga.client.journal.event_types import EVENTS
from orga.workflows.types import names


def events_page() -> str:
    """Return the page of the journal's events."""
    rows = [
        f"| `{name}` | {in_cell(event.meaning())} | {', '.join(f'`{key}`' for key in event.data_keys())} |"
        for name, event in EVENTS.items()
    ]
    head = (
        "# Journal events\n\n"
        "What `orga journal ID` shows and `--json` prints, one event an entry, in the order in which a run comes to them. Every\n"
        "entry has `sequence`, `timestamp`, `agent`, `iteration`, `event`, `data` and `hash`; an entry of a delegated run has\n"
        "`run` in its data, too. Keys stand there only where there is something to say. The file that an export writes is\n"
        "described in [the exported journal](../journal-format.md).\n\n"
        "| event | tells | data |\n|---|---|---|\n"
    )
    return head + "\n".join(rows)


def attributes_page() -> str:
    """Return the page of the search attributes."""
    source = module("orga.workflows.types.names")
    rows: list[str] = []
    for variable, key in vars(names).items():
        if key in names.KEYS and variable.isupper():
            rows.append(
                f"| `{key.name}` | {key.indexed_value_type.name} | {in_cell(docstring_text(source.members[variable]))} |"
            )
    head = (
        "# Search attributes\n\n"
        "By these runs are listed: `orga list --query \"OrgaPhase = 'paused'\"`, the Temporal UI, `temporal workflow list`. The\n"
        "embedded server has them; on another one `orga setup` registers them, and runs go on without where they are lacking.\n\n"
        "| attribute | type | value |\n|---|---|---|\n"
    )
    return head + "\n".join(rows)
