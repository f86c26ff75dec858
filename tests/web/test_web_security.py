import pytest
from fastapi.testclient import TestClient
from web_pictures import as_file

from bitprint.web import create_app

HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/static/app.js", 200),
        ("GET", "/static/draw.js", 200),
        ("GET", "/api/info", 200),
        ("GET", "/health", 200),
        ("GET", "/metrics", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/nowhere", 404),
        ("GET", "/docs", 404),
        ("GET", "/static/", 404),
        ("GET", "/static/../app.py", 404),
        ("GET", "/static/%2e%2e/app.py", 404),
        ("GET", "/static/..%2fapp.py", 404),
        ("DELETE", "/api/search", 405),
        ("POST", "/api/search", 415),
    ],
)
def test_every_answer_carries_the_headers(client, method, path, status):
    response = client.request(method, path)
    assert response.status_code == status
    assert HEADERS.items() <= dict(response.headers).items()
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "server" not in response.headers


def test_a_failure_carries_the_headers_and_no_trace(collection, monkeypatch):
    def fail(searches):
        raise RuntimeError("secret")

    app = create_app(collection)
    with TestClient(app, base_url="http://localhost") as client:
        monkeypatch.setattr(app.state.server._searches, "_work", fail)
        response = client.post("/api/search", json={"code": "00" * 8})
    assert response.status_code == 500
    assert HEADERS.items() <= dict(response.headers).items()
    assert set(response.json()) == {"detail"}
    assert "secret" not in response.text


def test_the_page_has_no_inline_code(client):
    page = client.get("/").text
    assert "style=" not in page
    assert "<style" not in page
    assert " on" + "click" not in page
    assert page.count("<script") == 1
    assert "://" not in page


@pytest.fixture(scope="module")
def guarded(collection):
    app = create_app(collection, token="open sesame, é")
    with TestClient(app, base_url="http://example.org") as client:
        yield client


@pytest.mark.parametrize("path", ["/api/info", "/metrics", "/api/thumbnail/n1", "/nowhere"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "open sesame"},
        {"Authorization": "Basic b3BlbiBzZXNhbWU="},
        {"Cookie": "bitprint-token="},
        {"Cookie": "bitprint-token=wrong"},
        {"Cookie": "other=open%20sesame%2C%20%C3%A9"},
    ],
)
def test_request_without_token_returns_401(guarded, path, headers):
    response = guarded.get(path, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert set(response.json()) == {"detail"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer open sesame, é".encode()},
        {"Authorization": "bearer open sesame, é".encode()},
        {"Cookie": "a=b; bitprint-token=open%20sesame%2C%20%C3%A9"},
    ],
)
def test_request_with_token_returns_200(guarded, headers):
    assert guarded.get("/api/info", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/health", "/openapi.json"])
def test_the_page_and_the_health_need_no_token(guarded, path):
    assert guarded.get(path).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8000", 200),
        ("localhost:8000", 200),
        ("[::1]:8000", 200),
        ("192.168.1.20", 200),
        ("Photos.lan:8000", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:8000", 421),
        ("[evil]:1", 421),
        ("", 421),
    ],
)
def test_unknown_host_name_returns_421(collection, host, status):
    app = create_app(collection, names=["photos.lan"])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.get("/health", headers={"Host": host}).status_code == status


FOREIGN = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:8000"},
    {"Sec-Fetch-Site": ""},
    {"Origin": "http://evil.example"},
    {"Origin": "http://127.0.0.1:3000"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://localhost"},
    {"Origin": "http://photos.lan:3000"},
    {"Origin": "null"},
    {"Origin": ""},
]
OWN = [
    {},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:8000"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://photos.lan:8443"},
    {"Origin": "http://127.0.0.1:8000"},
    {"Origin": "https://photos.lan"},
]


def upload(client, scenes, headers):
    files = {"picture": ("a.png", as_file(scenes[0]))}
    return client.post("/api/search", files=files, headers=headers)


@pytest.fixture(scope="module")
def named(collection):
    app = create_app(collection, names=["127.0.0.1", "Photos.lan"])
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        yield client


@pytest.mark.parametrize("headers", FOREIGN)
def test_request_from_another_site_returns_403(named, scenes, headers):
    response = upload(named, scenes, headers)
    assert response.status_code == 403
    assert "another website" in response.json()["detail"]
    assert "access-control-allow-origin" not in response.headers
    for path in ("/api/info", "/health", "/static/app.js", "/openapi.json"):
        assert named.get(path, headers=headers).status_code == 403


@pytest.mark.parametrize("headers", OWN)
def test_request_from_the_page_or_a_script_returns_200(named, scenes, headers):
    assert upload(named, scenes, headers).status_code == 200


def test_link_from_another_site_opens_the_page(named):
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert named.get("/", headers=headers).status_code == 200


def test_request_from_another_site_needs_the_token_in_the_header(guarded, scenes):
    bearer = {"Authorization": "Bearer open sesame, é".encode()}
    cookie = {"Cookie": "bitprint-token=open%20sesame%2C%20%C3%A9"}
    foreign = {"Sec-Fetch-Site": "same-site", "Origin": "http://example.org:3000"}
    assert upload(guarded, scenes, foreign).status_code == 401
    assert upload(guarded, scenes, foreign | cookie).status_code == 403
    assert upload(guarded, scenes, foreign | bearer).status_code == 200
    assert upload(guarded, scenes, cookie).status_code == 200
    wrong = {"Authorization": "Bearer wrong"}
    assert guarded.get("/health", headers=foreign | wrong).status_code == 403
