"""Routes of the server: page, search, photos, health and metrics."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import AsyncIterator, Iterator
from collections.abc import Collection as Names
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import ValidationError
from starlette.background import BackgroundTask
from starlette.datastructures import UploadFile

from bitprint.version import __version__
from bitprint.web.collection import KEY_PATTERN, Collection
from bitprint.web.head import HeadRequests
from bitprint.web.limits import MOST_RESULTS, OVERLOADED, RETRY, BoundedRequests, Limits
from bitprint.web.metrics import Metrics, MetricsMiddleware
from bitprint.web.models import (
    Answer,
    Error,
    Health,
    Info,
    Options,
    Query,
    UploadLimits,
    first_error,
    search_body,
)
from bitprint.web.pictures import CONTENT_TYPES
from bitprint.web.security import AccessControl, SecurityHeaders
from bitprint.web.server import Server

_STATIC = Path(__file__).parent / "static"
_CHUNK = 1 << 16
_REVALIDATE = "private, no-cache"  # the file may be overwritten

_MEANINGS = {
    400: "The request is not valid HTTP, or its body does not match its content type.",
    401: "The token is missing or wrong.",
    403: "The request comes from another website.",
    404: "There is no such item or photo.",
    408: "The request did not arrive in time.",
    413: "The upload is too large.",
    415: "The content type is not supported, or the photo cannot be read.",
    421: "The server does not accept this host name.",
    422: "The request is invalid.",
    431: "The header is too large.",
    503: "The server is overloaded; try again later.",
}


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Document the errors of a route and those common to all routes."""
    listed = sorted({*statuses, 400, 401, 403, 408, 413, 421, 431, 503})
    return {status: {"model": Error, "description": _MEANINGS[status]} for status in listed}


async def _server_of(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


Shared = Annotated[Server, Depends(_server_of)]
Key = Annotated[str, InPath(pattern=KEY_PATTERN, description="The id of a search result.")]

router = APIRouter()


def create_app(
    collection: Collection,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    names: Names[str] = (),
) -> FastAPI:
    """Create the ASGI application that serves a collection.

    Parameters
    ----------
    collection : Collection
        The caller closes its index after use.
    token : str, optional
        Required for all requests except those for the page, /health and /openapi.json.
    limits : Limits, optional
        Limits on the cost of requests.
    names : collection of str
        Host names of the server in addition to localhost and numeric addresses.

    Returns
    -------
    FastAPI
        The API is documented at /openapi.json. /docs is disabled, because it loads scripts from
        other servers.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> from fastapi.testclient import TestClient
    >>> codes = bp.Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/photos.bp", bits=4) as index:
    ...         index.add(["tom", "rex"], codes, labels=[["cat"], ["dog"]])
    ...         app = create_app(Collection(index))
    ...         with TestClient(app, base_url="http://localhost") as client:
    ...             client.get("/health").json()
    ...             found = client.post("/api/search", json={"code": "f0", "k": 1}).json()
    {'status': 'ok', 'codes': 2}
    >>> [(result["name"], result["distance"]) for result in found["results"]]
    [('tom', 0)]
    """
    limits = limits or Limits()
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.server = server = Server(collection, limits, metrics)
        try:
            await server.executor.run(server.warm_up)
            yield
        finally:
            server.close()

    app = FastAPI(
        title="Bitprint",
        summary="Search a collection of photos by the Hamming distance of their codes.",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.include_router(router)
    app.add_api_route(
        "/api/search",
        search,
        methods=["POST"],
        responses=_errors(400, 404, 415, 422),
        openapi_extra=search_body(collection.index.bits),
    )
    app.mount("/static", StaticFiles(directory=_STATIC))
    app.add_exception_handler(queue.Full, _overloaded)
    app.add_exception_handler(ConnectionError, _unreachable)
    app.add_exception_handler(RequestValidationError, _invalid)
    # The last middleware added is the outermost one.
    app.add_middleware(AccessControl, token=token, names=names)
    app.add_middleware(BoundedRequests, limits=limits)
    app.add_middleware(MetricsMiddleware, metrics=metrics)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(HeadRequests)
    return app


@router.get("/", include_in_schema=False)
async def page() -> FileResponse:
    """Return the page."""
    return FileResponse(_STATIC / "index.html", headers={"Cache-Control": "no-cache"})


@router.get("/api/info", responses=_errors())
async def info(server: Shared) -> Info:
    """Return the name, size, code length, model and labels of the collection."""
    collection = server.collection
    encoder, limits = collection.encoder, server.limits
    return Info(
        name=collection.name,
        codes=await asyncio.to_thread(len, collection.index),
        bits=collection.index.bits,
        model=None if encoder is None else encoder.describe(),
        labels=await server.executor.run(collection.labels),
        uploads=None
        if encoder is None
        else UploadLimits(bytes=limits.upload_bytes, pixels=limits.pixels),
        most_results=MOST_RESULTS,
        version=__version__,
    )


async def search(request: Request, server: Shared) -> Answer:
    """Find the items nearest to a photo, a code or an item of the collection."""
    started = time.perf_counter()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    options: Options
    try:
        if kind == "application/json":
            options = query = Query.model_validate_json(await request.body())
            code = await server.code_of_query(query)
        elif kind == "multipart/form-data":
            if server.collection.encoder is None:
                raise HTTPException(415, "this index contains no model; search by code or by id")
            options, picture = await _read_form(request)
            code = await server.code_of_picture(picture)
        else:
            raise HTTPException(415, "send application/json, or a photo as multipart/form-data")
    except ValidationError as error:
        raise HTTPException(422, first_error(error)) from None
    return await server.answer(code, options, started)


async def _read_form(request: Request) -> tuple[Options, bytes]:
    """Return the options and the image file of a form."""
    async with request.form(max_files=1, max_fields=8, max_part_size=1 << 14) as form:
        fields = dict(form)
        picture = fields.pop("picture", None)
        if not isinstance(picture, UploadFile):
            raise HTTPException(422, "picture: send the photo as a file in this field")
        options = Options.model_validate(fields, strict=False)  # form fields are strings
        return options, await picture.read()


@router.get(
    "/api/thumbnail/{key}",
    response_class=Response,
    responses=_errors(404, 422)
    | {
        200: {"content": {"image/jpeg": {}}},
        304: {"description": "The thumbnail has not changed."},
    },
)
async def thumbnail(
    key: Key, server: Shared, if_none_match: Annotated[str, Header()] = ""
) -> Response:
    """Return the photo of an item as a JPEG of at most 320 x 320 pixels."""
    try:
        found, data = await server.thumbnail(key, if_none_match.strip('"'))
    except (ValueError, FileNotFoundError):
        raise HTTPException(404, "there is no such photo") from None
    headers = {"ETag": f'"{found}"', "Cache-Control": _REVALIDATE}
    if data is None:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type="image/jpeg", headers=headers)


@router.get(
    "/api/picture/{key}",
    response_class=Response,
    responses=_errors(404, 422)
    | {200: {"content": {kind: {} for kind in sorted(set(CONTENT_TYPES.values()))}}},
)
async def picture(key: Key, server: Shared) -> StreamingResponse:
    """Return the unchanged image file of an item."""
    try:
        opened = await server.open_picture(key)
    except (ValueError, FileNotFoundError):
        raise HTTPException(404, "there is no such photo") from None
    headers = {
        "Content-Length": str(opened.bytes),
        "ETag": f'"{opened.version}"',
        "Cache-Control": _REVALIDATE,
    }
    return StreamingResponse(
        _chunks(opened.file, opened.bytes),
        media_type=opened.content_type,
        headers=headers,
        background=BackgroundTask(opened.file.close),  # in case the body is not read, as for HEAD
    )


def _chunks(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield at most `size` bytes of a file, which may grow in the meantime."""
    with file:
        file.seek(0)
        while size > 0 and (chunk := file.read(min(size, _CHUNK))):
            size -= len(chunk)
            yield chunk


@router.get("/health", responses=_errors())
async def health(server: Shared) -> Health:
    """Report that the server is running and its index is readable."""
    return Health(status="ok", codes=await asyncio.to_thread(len, server.collection.index))


@router.get("/metrics", response_class=PlainTextResponse, responses=_errors())
async def metrics(server: Shared) -> PlainTextResponse:
    """Return request counts and latencies in the Prometheus text format."""
    text = server.metrics.render(await asyncio.to_thread(server.gauges))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


async def _overloaded(_request: Request, _error: Exception) -> JSONResponse:
    return JSONResponse({"detail": OVERLOADED}, 503, RETRY)


async def _unreachable(_request: Request, _error: Exception) -> JSONResponse:
    return JSONResponse({"detail": "the index cannot be reached; try again"}, 503, RETRY)


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return JSONResponse({"detail": f"{first['loc'][-1]}: {first['msg']}"}, 422)
