"""What the routes share: the collection, and the threads that work on it."""

from __future__ import annotations

import os
import time
from typing import IO, NamedTuple

from fastapi import HTTPException

from bitprint.web.batching import Batcher, Crew
from bitprint.web.collection import Collection, Found, Picture, Search
from bitprint.web.limits import Limits
from bitprint.web.metrics import Metrics
from bitprint.web.models import Answer, Options, Query, Result, Timing, parse_code
from bitprint.web.pictures import (
    Thumbnails,
    check_picture,
    decode_upload,
    open_inside,
    version_of,
)

# Larger batches are hardly faster, and the first of a batch waits for the last.
_ENCODED_TOGETHER = 16
_SEARCHED_TOGETHER = 32


class PictureFile(NamedTuple):
    """A picture of the collection, open for reading."""

    file: IO[bytes]
    content_type: str
    bytes: int
    version: str


class Server:
    """A collection at work: decoding on a few threads, encoding and searching in batches."""

    def __init__(self, collection: Collection, limits: Limits, metrics: Metrics) -> None:
        self.collection = collection
        self.limits = limits
        self.metrics = metrics
        self.crew = Crew(os.cpu_count() or 2, limits.waiting)
        self._thumbnails = Thumbnails(limits.pixels)
        self._searches: Batcher[Search, list[Found]] = Batcher(
            collection.search, most=_SEARCHED_TOGETHER, waiting=limits.waiting
        )
        self._encodings: Batcher[Picture, bytes] = Batcher(
            collection.encode, most=_ENCODED_TOGETHER, waiting=limits.waiting
        )

    def close(self) -> None:
        """Finish what has begun and stop the threads."""
        self._searches.close()
        self._encodings.close()
        self.crew.close()

    def gauges(self) -> dict[str, float]:
        """Measure what changes from moment to moment."""
        return {
            "codes": len(self.collection.index),
            "waiting_searches": self._searches.waiting(),
            "waiting_encodings": self._encodings.waiting(),
        }

    async def code_of_picture(self, data: bytes) -> bytes:
        """Decode and encode an upload."""
        assert self.collection.encoder is not None
        size = self.collection.encoder.size
        try:
            picture = await self.crew.run(decode_upload, data, size, self.limits.pixels)
        except ValueError as error:
            raise HTTPException(415, str(error)) from None
        return await self._encodings.submit(picture)

    async def code_of_query(self, query: Query) -> bytes:
        """Return the code that a query gives, or that of the item it names."""
        if "code" in query.model_fields_set:
            try:
                return parse_code(query.code, self.collection.index.bits)
            except ValueError as error:
                raise HTTPException(422, str(error)) from None
        try:
            return await self.crew.run(self.collection.code_of, query.id)
        except ValueError:
            raise HTTPException(404, "the collection holds no item of this id") from None

    async def answer(self, code: bytes, options: Options, started: float) -> Answer:
        """Search for a code that was asked for at `started`."""
        encoded = time.perf_counter()
        most = options.most
        found = await self._searches.submit(Search(code, most, options.radius, options.label))
        finished = time.perf_counter()
        return Answer(
            code=code.hex(),
            results=[
                Result(
                    id=key,
                    name=name,
                    labels=list(labels),
                    distance=distance,
                    code=its_code.hex(),
                    has_picture=has_picture,
                )
                for key, name, labels, distance, its_code, has_picture in found
            ],
            truncated="radius" in options.model_fields_set and len(found) == most,
            collection=self.collection.held,
            milliseconds=Timing(
                encode=round(1e3 * (encoded - started), 3),
                search=round(1e3 * (finished - encoded), 3),
            ),
        )

    def thumbnail(self, key: str, known: str | None) -> tuple[str, bytes | None]:
        """Return the version of an item's thumbnail and, unless that is known, its JPEG.

        Raises FileNotFoundError or ValueError where there is no such picture.
        """
        with open_inside(self.collection.path_of(key), self.collection.roots) as file:
            version = version_of(file)
            return version, None if version == known else self._thumbnails.get(file)

    def open_picture(self, key: str) -> PictureFile:
        """Open the file of an item; raises FileNotFoundError or ValueError like `thumbnail`."""
        file = open_inside(self.collection.path_of(key), self.collection.roots)
        try:
            kind = check_picture(file, self.limits.pixels)
            return PictureFile(file, kind, file.seek(0, os.SEEK_END), version_of(file))
        except BaseException:
            file.close()
            raise
