"""The two kinds of value: records that reach a history, and what people write."""

from collections.abc import Mapping, Set
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

M = TypeVar("M", bound=BaseModel)


class Record(BaseModel):
    """Frozen. A new field has a default and an unknown one is ignored, so a history of another version decodes."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Border(BaseModel):
    """What people write (input, `orga.toml`): frozen; NaN and infinity are refused, and `true` where a number belongs.

    Where it is written, `model_validate(..., extra="forbid")` refuses an unknown key by name. Read back from a history,
    an unknown key is one of another version and is ignored.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse it; pydantic takes it for 1, and a limit of 1 nobody meant."""
        if _is_truth_among(value) and _is_numeric(cls.model_fields[info.field_name or ""].annotation):
            raise ValueError("must be a number, not true or false")
        return value


def replace_fields(record: M, changes: Mapping[str, object], fields: Set[str] | None = None) -> M:
    """Return the record with these changes. Only a record's own typed methods call it: nothing checks types here.

    Args:
        record: Stays as it is.
        changes: By field.
        fields: Those that may change; None for all.

    Raises:
        TypeError: There is no such field among them.
    """
    known = type(record).__pydantic_fields__.keys() if fields is None else fields
    if not changes.keys() <= known:
        raise TypeError(f"{type(record).__name__} has no such field here: {', '.join(sorted(changes.keys() - known))}")
    return record.model_copy(update=changes)


def replace_differing_fields(record: M, changes: Mapping[str, object]) -> M:
    """Return the record with those of the changes that differ: a default stays unset, which costs no history."""
    differences = {name: value for name, value in changes.items() if getattr(record, name, ...) != value}
    return replace_fields(record, differences) if differences else record


def _is_truth_among(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, bool) for item in cast("list[object]", value))
    if isinstance(value, dict):
        return any(isinstance(item, bool) for item in cast("dict[str, object]", value).values())
    return isinstance(value, bool)


def _is_numeric(annotation: object) -> bool:
    """Return whether numbers are all that a field takes, or all that its items may be."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _is_numeric(parts[0])
    if origin in {Union, UnionType}:
        kinds = [part for part in parts if part is not NoneType]
        return bool(kinds) and all(map(_is_numeric, kinds))
    if origin in {tuple, list}:
        return _is_numeric(parts[0])
    return _is_numeric(parts[1]) if origin is dict else annotation is int or annotation is float
