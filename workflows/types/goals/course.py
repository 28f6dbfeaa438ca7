"""The course of a pipeline: what its later steps need of those before."""

from typing import Self, TypedDict, Unpack

from orga.workflows.types.record import Record, replace_fields


class CourseChanges(TypedDict, total=False):
    """What `Course.with_fields` takes: its fields."""

    outputs: dict[str, str]
    guidance: tuple[str, ...]
    scores: tuple[float, ...]
    remarks: str


class Course(Record):
    """What a goal knows of its pipeline beside the steps."""

    outputs: dict[str, str] = {}
    """What steps brought that is needed yet, by their ids."""
    guidance: tuple[str, ...] = ()
    """What people said, which each step is told from then on; of too much the latest."""
    scores: tuple[float, ...] = ()
    """Of the drafts, from 0 to 1, in their order."""
    remarks: str = ""
    """Of the critic on the latest draft, or what was wrong with them."""

    def with_fields(self, **changes: Unpack[CourseChanges]) -> Self:
        """Return the course with these changes."""
        return replace_fields(self, changes)
