"""What is said over HTTP: the bodies of requests and answers, as OpenAPI documents them."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from bitprint.web.collection import KEY_PATTERN
from bitprint.web.limits import MOST_RESULTS

_MOST_BITS = 1024

Count = Annotated[int, Field(ge=0)]
Milliseconds = Annotated[float, Field(ge=0)]


# JSON knows one kind of number, of which 22.0 is whole.
Whole = Annotated[
    int, BeforeValidator(lambda n: int(n) if isinstance(n, float) and n.is_integer() else n)
]


class Options(BaseModel):
    """What to look for besides the query itself."""

    model_config = ConfigDict(extra="forbid", strict=True)

    k: Whole = Field(
        24,
        ge=1,
        le=MOST_RESULTS,
        description=f"At most so many results; {MOST_RESULTS} where only a radius is given.",
    )
    radius: Whole = Field(
        _MOST_BITS, ge=0, le=_MOST_BITS, description="Only results at most so many bits away."
    )
    label: str = Field("", max_length=1000, description="Only results that carry this label.")

    @property
    def most(self) -> int:
        """How many results are wanted at most."""
        only_radius = "radius" in self.model_fields_set and "k" not in self.model_fields_set
        return MOST_RESULTS if only_radius else self.k


class Query(Options):
    """A search by code, or by an item of the collection."""

    id: str = Field("", pattern=KEY_PATTERN, description="The id of a result of another search.")
    code: str = Field("", description="A code in hexadecimal, first bit first.")

    @model_validator(mode="after")
    def _check_one(self) -> Query:
        if len({"id", "code"} & self.model_fields_set) != 1:
            raise ValueError("give either an id or a code")
        return self


class Result(BaseModel):
    """One item found."""

    id: str = Field(pattern=KEY_PATTERN, description="To search from it, and for its picture.")
    name: str = Field(description="Its path below the indexed folder, or its id in the index.")
    labels: list[str]
    distance: Count = Field(description="In how many bits its code differs from the query's.")
    code: str = Field(description="Its code in hexadecimal, first bit first.")
    has_picture: bool = Field(description="Whether a picture and a thumbnail can be asked for.")


class Timing(BaseModel):
    """Where the time went, waiting for other requests included."""

    encode: Milliseconds = Field(description="From the picture, or the id, to the code.")
    search: Milliseconds


class Answer(BaseModel):
    """What a search found, nearest first."""

    code: str = Field(description="The code of the query in hexadecimal, first bit first.")
    results: list[Result]
    truncated: bool = Field(description="Whether more may lie within the radius than were sent.")
    collection: Count = Field(description="How many codes the collection holds.")
    milliseconds: Timing


class UploadLimits(BaseModel):
    """What an uploaded picture may measure."""

    bytes: Count
    pixels: Count


class Info(BaseModel):
    """What is being served."""

    name: str
    codes: Count
    bits: Annotated[int, Field(ge=1)]
    model: str | None = Field(description="Which model encodes uploads; null if none does.")
    labels: list[str]
    uploads: UploadLimits | None = Field(description="Null where pictures cannot be uploaded.")
    most_results: Count
    version: str


class Health(BaseModel):
    """That the server is alive and its index readable."""

    status: str
    codes: Count


class Error(BaseModel):
    """What went wrong, in one sentence."""

    detail: str


Model = TypeVar("Model", bound=BaseModel)


def code_pattern(bits: int) -> str:
    """Return the regular expression of a code of so many bits, its padding zero.

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
    """Return the bytes of a code in hexadecimal; raises ValueError unless it has so many bits."""
    if not re.fullmatch(code_pattern(bits), code):
        raise ValueError(
            f"code: {bits}-bit codes are {-(-bits // 8) * 2} hexadecimal digits, "
            "bits of padding zero"
        )
    return bytes.fromhex(code)


def in_one_sentence(error: ValidationError) -> str:
    """Say the first thing that is wrong."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


def search_body(bits: int) -> dict[str, Any]:
    """Document the two kinds of body that a search takes: JSON, or a form with a picture."""
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
