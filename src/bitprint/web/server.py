"""Shared state of the routes: the collection and its worker threads."""

from __future__ import annotations

import os
import time
from typing import IO, NamedTuple

from fastapi import HTTPException

from bitprint.web.batching import Batcher, BoundedExecutor
from bitprint.web.collection import Collection, Found, Pixels, SearchRequest
from bitprint.web.decoding import Decoders
from bitprint.web.limits import Limits
from bitprint.web.metrics import Metrics
from bitprint.web.models import Answer, Options, Query, Result, Timing, parse_code
from bitprint.web.pictures import CONTENT_TYPES, Thumbnails, open_inside, version_of

# Larger batches are hardly faster, and all results of a batch wait for its last job.
_ENCODED_TOGETHER = 16
_SEARCHED_TOGETHER = 32
_MOST_PROCESSES = 4  # each may use memory for the largest image


class PictureFile(NamedTuple):
    """An open image file of the collection."""

    file: IO[bytes]
    content_type: str
    bytes: int
    version: str


class Server:
    """Decode in a few processes; encode and search in batches on one thread each."""

    def __init__(self, collection: Collection, limits: Limits, metrics: Metrics) -> None:
        self.collection = collection
        self.limits = limits
        self.metrics = metrics
        self.executor = BoundedExecutor(os.cpu_count() or 2, limits.waiting)
        processes = min(os.cpu_count() or 2, _MOST_PROCESSES)
        self._decoders = Decoders(processes, limits.pixels)
        self._decoding = BoundedExecutor(processes, limits.waiting)
        self._thumbnails = Thumbnails(self._decoders.thumbnail)
        self._searches: Batcher[SearchRequest, list[Found]] = Batcher(
            collection.search, most=_SEARCHED_TOGETHER, waiting=limits.waiting
        )
        self._encodings: Batcher[Pixels, bytes] = Batcher(
            collection.encode, most=_ENCODED_TOGETHER, waiting=limits.waiting
        )

    def close(self) -> None:
        """Finish the running work and shut down the threads."""
        self._searches.close()
        self._encodings.close()
        self._decoding.close()
        self._decoders.close()
        self.executor.close()

    def warm_up(self) -> None:
        """Compile, load and start everything the first request needs."""
        self.collection.warm_up()
        if self.collection.encoder is not None:
            self._decoders.warm_up()

    def gauges(self) -> dict[str, float]:
        """Return the current number of codes and queued jobs."""
        return {
            "codes": len(self.collection.index),
            "waiting_searches": self._searches.waiting(),
            "waiting_encodings": self._encodings.waiting(),
        }

    async def code_of_picture(self, data: bytes) -> bytes:
        """Return the code of an uploaded image file."""
        assert self.collection.encoder is not None
        size = self.collection.encoder.size
        try:
            picture = await self._decoding.run(self._decoders.upload, data, size)
        except ValueError as error:
            raise HTTPException(415, str(error)) from None
        return await self._encodings.submit(picture)

    async def code_of_query(self, query: Query) -> bytes:
        """Return the code given in a query, or the code of the given item."""
        if "code" in query.model_fields_set:
            try:
                return parse_code(query.code, self.collection.index.bits)
            except ValueError as error:
                raise HTTPException(422, str(error)) from None
        try:
            return await self.executor.run(self.collection.code_of, query.id)
        except ValueError:
            raise HTTPException(404, "the collection contains no item with this id") from None

    async def answer(self, code: bytes, options: Options, started: float) -> Answer:
        """Search for a code; `started` is the start time of the request."""
        encoded = time.perf_counter()
        most = options.most
        found = await self._searches.submit(
            SearchRequest(code, most, options.radius, options.label)
        )
        finished = time.perf_counter()
        return Answer(
            code=code.hex(),
            results=[
                Result(
                    id=key,
                    name=name,
                    labels=list(labels),
                    distance=distance,
                    code=item_code.hex(),
                    has_picture=has_picture,
                )
                for key, name, labels, distance, item_code, has_picture in found
            ],
            truncated="radius" in options.model_fields_set and len(found) == most,
            collection=self.collection.count,
            milliseconds=Timing(
                encode=round(1e3 * (encoded - started), 3),
                search=round(1e3 * (finished - encoded), 3),
            ),
        )

    async def thumbnail(self, key: str, known: str) -> tuple[str, bytes | None]:
        """Return the version of a thumbnail and, if it differs from `known`, its JPEG.

        Raise FileNotFoundError or ValueError if there is no such image.
        """
        version, found = await self.executor.run(self._find_thumbnail, key)
        if version == known or found is not None:
            return version, None if version == known else found
        return await self._decoding.run(self._make_thumbnail, key)

    def _find_thumbnail(self, key: str) -> tuple[str, bytes | None]:
        with open_inside(self.collection.path_of(key), self.collection.roots) as file:
            version = version_of(file)
            return version, self._thumbnails.find(version)

    def _make_thumbnail(self, key: str) -> tuple[str, bytes]:
        with open_inside(self.collection.path_of(key), self.collection.roots) as file:
            return version_of(file), self._thumbnails.get(file)

    async def open_picture(self, key: str) -> PictureFile:
        """Open the image file of an item; raise the same errors as `thumbnail`."""
        return await self._decoding.run(self._open_picture, key)

    def _open_picture(self, key: str) -> PictureFile:
        file = open_inside(self.collection.path_of(key), self.collection.roots)
        try:
            kind = CONTENT_TYPES.get(self._decoders.find_format(file))
            if kind is None:
                raise ValueError("the photo has an unknown format")
            return PictureFile(file, kind, file.seek(0, os.SEEK_END), version_of(file))
        except BaseException:
            file.close()
            raise
