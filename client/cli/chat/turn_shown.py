"""A turn that has ended: its answer on stdout, the facts on stderr."""

from dataclasses import dataclass

from orga.client.cli.answer_text import answer
from orga.client.cli.ending import facts
from orga.client.cli.exit_codes import of_ending
from orga.client.cli.output import alarm, json_result, note
from orga.workflows.types.sessions.result import TurnResult


@dataclass(frozen=True)
class TurnShown:
    """Shows turns of one session: as text, or each as one line of JSON."""

    session: str
    as_json: bool

    def show(self, turn: TurnResult) -> None:
        """Write it."""
        if self.as_json:
            json_result({"session": self.session, **turn.model_dump(mode="json")}, indent=None)
        elif turn.output:
            answer(turn.output)
        (alarm if of_ending(turn.termination.reason) else note)(f"turn {turn.turn}: {facts(turn)}")
