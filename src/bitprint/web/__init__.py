"""Web server: a page for searching a collection by example, and its HTTP API."""

try:
    import fastapi as _fastapi  # noqa: F401
    import python_multipart as _python_multipart  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        f"the server needs {error.name}: pip install fastapi uvicorn python-multipart"
    ) from error

from bitprint.web.app import create_app
from bitprint.web.collection import Collection
from bitprint.web.limits import Limits
from bitprint.web.run import listen, make_server

__all__ = ["Collection", "Limits", "create_app", "listen", "make_server"]
