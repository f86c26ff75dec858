"""Request and response bodies of the HTTP API."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from bitprint.web.collection import KEY_PATTERN
from bitprint.web.limits import MOST_RESULTS

_MOST_BITS = 1024

Count = Annotated[int, Field(ge=0)]
Milliseconds = Annotated[float, Field(ge=0)]


# In JSON, 22.0 is a valid integer.
Whole = Annotated[
    int, BeforeValidator(lambda n: int(n) if isinstance(n, float) and n.is_integer() else n)
]


class Options(BaseModel):
    """Search options."""

    model_config = ConfigDict(extra="forbid", strict=True)

    k: Whole = Field(
        24,
        ge=1,
        le=MOST_RESULTS,
        description=f"Maximum number of results; {MOST_RESULTS} if only a radius is given.",
    )
    radius: Whole = Field(
        _MOST_BITS, ge=0, le=_MOST_BITS, description="Maximum distance of the results in bits."
    )
    label: str = Field("", max_length=1000, description="Return only results with this label.")

    @property
    def most(self) -> int:
        """Maximum number of results."""
        only_radius = "radius" in self.model_fields_set and "k" not in self.model_fields_set
        return MOST_RESULTS if only_radius else self.k


class Query(Options):
    """A search by code or by an item of the collection."""

    id: str = Field("", pattern=KEY_PATTERN, description="The id of a search result.")
    code: str = Field("", description="A code in hexadecimal, first bit first.")

    @model_validator(mode="after")
    def _check_one(self) -> Query:
        if len({"id", "code"} & self.model_fields_set) != 1:
            raise ValueError("give either an id or a code")
        return self


class Result(BaseModel):
    """A search result."""

    id: str = Field(
        pattern=KEY_PATTERN, description="Id for searches by this item, and for its photo."
    )
    name: str = Field(description="Path below the indexed folder, or id in the index.")
    labels: list[str]
    distance: Count = Field(description="Hamming distance to the code of the query.")
    code: str = Field(description="The code in hexadecimal, first bit first.")
    has_picture: bool = Field(description="Whether a photo and a thumbnail are available.")


class Timing(BaseModel):
    """Processing times, including waiting for other requests."""

    encode: Milliseconds = Field(description="Time to get the code of the photo or item.")
    search: Milliseconds


class Answer(BaseModel):
    """The results of a search, nearest first."""

    code: str = Field(description="The code of the query in hexadecimal, first bit first.")
    results: list[Result]
    truncated: bool = Field(description="Whether there may be more results within the radius.")
    collection: Count = Field(description="Number of codes in the collection.")
    milliseconds: Timing


class UploadLimits(BaseModel):
    """Limits on uploaded photos."""

    bytes: Count
    pixels: Count


class Info(BaseModel):
    """Properties of the collection."""

    name: str
    codes: Count
    bits: Annotated[int, Field(ge=1)]
    model: str | None = Field(description="The model that encodes uploads, or null.")
    labels: list[str]
    uploads: UploadLimits | None = Field(description="Null if photos cannot be uploaded.")
    most_results: Count
    version: str


class Health(BaseModel):
    """State of the server."""

    status: str
    codes: Count


class Error(BaseModel):
    """An error message."""

    detail: str


Model = TypeVar("Model", bound=BaseModel)


def code_pattern(bits: int) -> str:
    """Return the regular expression of a hexadecimal code with zero padding bits.

    Examples
    --------
    >>> code_pattern(64), code_pattern(12), code_pattern(2)
    ('^[0-9a-fA-F]{16}$', '^[0-9a-fA-F]{3}0$', '^[048cC]0$')
    """
    digits, rest = divmod(bits, 4)
    pattern = "[0-9a-fA-F]" + f"{{{digits}}}" if digits else ""
    if rest:
        last = [f"{value:x}" for value in range(0, 16, 1 << (4 - rest))]
        pattern += "[" + "".join(dict.fromkeys(c for d in last for c in (d, d.upper()))) + "]"
    padding = -(-bits // 8) * 2 - -(-bits // 4)
    return f"^{pattern}{'0' * padding}$"


def parse_code(code: str, bits: int) -> bytes:
    """Return the bytes of a hexadecimal code; raise ValueError if it is invalid."""
    if not re.fullmatch(code_pattern(bits), code):
        raise ValueError(
            f"code: {bits}-bit codes have {-(-bits // 8) * 2} hexadecimal digits "
            "and zero padding bits"
        )
    return bytes.fromhex(code)


def first_error(error: ValidationError) -> str:
    """Return the first validation error as one line."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


def search_body(bits: int) -> dict[str, Any]:
    """Document the two request bodies of a search: JSON and a form with a photo."""
    query = Query.model_json_schema()
    query["properties"]["code"] |= {"pattern": code_pattern(bits)}
    for name in ("id", "code"):
        del query["properties"][name]["default"]
    query["oneOf"] = [{"required": ["id"]}, {"required": ["code"]}]
    form = Options.model_json_schema() | {"title": "PictureQuery", "required": ["picture"]}
    form["description"] = "A search by example."
    form["properties"]["picture"] = {"type": "string", "format": "binary"}
    media = {
        "application/json": {"schema": query},
        "multipart/form-data": {
            "schema": form,
            "encoding": {"picture": {"contentType": "image/*"}},
        },
    }
    return {"requestBody": {"required": True, "content": media}}
