"""The two kinds of value: records that reach a history, and what people write."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Frozen. A new field has a default and an unknown one is ignored, so a history of another version decodes."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Border(BaseModel):
    """What people write (input, `orga.toml`): frozen; NaN and infinity are refused.

    Where it is written, `model_validate(..., extra="forbid")` refuses an unknown key by name. Read back from a history,
    an unknown key is one of another version and is ignored.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
