"""The two kinds of value: records that reach a history, and what people write."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Frozen. A new field has a default and an unknown one is ignored, so a history of another version decodes."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Border(BaseModel):
    """What people write (input, `orga.toml`): frozen, and an unknown key is refused by name, as is NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
