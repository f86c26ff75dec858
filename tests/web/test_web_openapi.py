import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import negative_data_rejection
from web_pictures import as_file

from bitprint.web import create_app

GREY = np.full((9, 7, 3), 100, np.uint8)

# A schema cannot require valid image files, so generate them here.
schemathesis.openapi.media_type(
    "image/*", st.sampled_from([as_file(GREY, kind) for kind in ("PNG", "JPEG", "WEBP")])
)

WITH_INPUT = [
    ("POST", "/api/search"),
    ("GET", "/api/thumbnail/{key}"),
    ("GET", "/api/picture/{key}"),
]
OPERATIONS = [("GET", "/api/info"), ("GET", "/health"), ("GET", "/metrics"), *WITH_INPUT]


@pytest.fixture(scope="module")
def document(collection):
    app = create_app(collection, names=["testserver"])
    return schemathesis.openapi.from_asgi("/openapi.json", app)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_valid_requests_are_answered_as_documented(document, method, path):
    check(document[path][method], schemathesis.GenerationMode.POSITIVE)


@pytest.mark.parametrize(("method", "path"), WITH_INPUT)
def test_invalid_requests_are_refused_as_documented(document, method, path):
    check(document[path][method], schemathesis.GenerationMode.NEGATIVE)


def check(operation, mode):
    @settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case):
        # Form fields are strings, and null or empty lists are omitted: an invalid object may be a
        # valid form.
        is_form = case.media_type == "multipart/form-data"
        case.call_and_validate(excluded_checks=[negative_data_rejection] if is_form else [])

    ask()


def test_the_document_covers_every_route_and_its_errors(client):
    paths = client.get("/openapi.json").json()["paths"]
    routes = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    assert sorted(routes) == sorted(OPERATIONS)
    for methods in paths.values():
        for operation in methods.values():
            assert operation["description"]
            assert {"401", "503"} <= set(operation["responses"])
    body = paths["/api/search"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "multipart/form-data"}
