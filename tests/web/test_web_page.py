"""Test the page in Chromium, from $CHROMIUM or the search path."""

import os
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import numpy as np
import pytest
from web_pictures import as_file

from bitprint.codes import Codes
from bitprint.data import ImageSet
from bitprint.methods import create
from bitprint.photos import Photos
from bitprint.photos.encoder import Encoder
from bitprint.web import Collection, Limits
from bitprint.web.collection import key_of

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run"
)

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser: install chromium, or name one in $CHROMIUM"
)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        names = "--host-resolver-rules=MAP photos.lan 127.0.0.1"
        flags = [*FLAGS.split(), names]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=flags, timeout=180_000)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(collection, serve):
    with serve(collection, limits=Limits(upload_bytes=100_000)) as address:
        yield address


@pytest.fixture
def open_page(browser):
    """Open an address in a new browser context; script errors fail the test."""
    contexts, troubles = [], []

    def open_page(address, expected=".card", **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "console",
            lambda message: troubles.append(message.text) if is_trouble(message) else None,
        )
        page.goto(address)
        page.wait_for_selector(expected)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def is_trouble(message):
    # Chromium logs all 4xx responses; the page shows them as messages. It ignores the policy for
    # windows of other origins, with a message, if a page has neither HTTPS nor a local address.
    ignored = ("Failed to load resource", "The Cross-Origin-Opener-Policy header has been ignored")
    return message.type == "error" and not message.text.startswith(ignored)


def choose(page, data, name="query.png"):
    page.set_input_files("#file", {"name": name, "mimeType": "image/png", "buffer": data})


def shown(page):
    """Return the keys of the cards in order."""
    return page.eval_on_selector_all(".card", "cards => cards.map(card => card.dataset.id)")


def wait_for_query(page, name):
    page.wait_for_function(
        "name => document.querySelector('.query-name').textContent.endsWith(name)", arg=name
    )


def nearest(collection, code, k):
    ids, distances = collection.index.search(code, k=k)
    return [key_of(one) for one in ids[0]], distances[0].tolist()


def test_upload_shows_the_nearest_with_distance_code_and_latency(
    open_page, address, collection, scenes
):
    page = open_page(address)
    assert "40 photos" in page.inner_text("#about")
    choose(page, as_file(scenes[7]))
    wait_for_query(page, "query.png")
    code = collection.encoder.encode([scenes[7]])
    keys, distances = nearest(collection, code, 24)
    assert shown(page) == keys
    assert page.locator(".distance").all_inner_texts() == [str(one) for one in distances]
    status = page.inner_text("#status")
    assert status.startswith("24 results from 40 photos in ")
    assert "ms" in status
    page.wait_for_function("() => document.querySelector('.frame img').naturalWidth > 0")
    assert page.get_attribute(".frame img", "alt")


def test_the_bars_are_the_code_and_the_marks_are_the_bits_that_differ(
    open_page, address, collection, scenes
):
    page = open_page(address)
    choose(page, as_file(scenes[7]))
    wait_for_query(page, "query.png")
    query = collection.encoder.encode([scenes[7]]).signs()[0]
    ids, distances = collection.index.search(Codes.from_signs(query[None]), k=24)
    card = page.locator(".card").nth(20)
    signs = collection.index.codes([ids[0, 20]]).signs()[0]
    paths = {name: card.locator(f"path.{name}").get_attribute("d") for name in ("agree", "differ")}
    agree = [f"M{x} {0 if bit > 0 else 7}h" for x, bit in enumerate(signs) if bit == query[x]]
    differ = [f"M{x} {0 if bit > 0 else 7}h" for x, bit in enumerate(signs) if bit != query[x]]
    assert paths["agree"].count("M") == len(agree)
    assert paths["differ"].count("M") == len(differ) == distances[0, 20] > 0
    assert all(bar in paths["agree"] for bar in agree)
    assert all(bar in paths["differ"] for bar in differ)

    def colors():
        fill = "path => getComputedStyle(path).fill"
        return [card.locator(f"path.{name}").evaluate(fill) for name in ("agree", "differ")]

    assert colors()[0] == colors()[1]
    agreement = card.locator(".agreement")
    assert not agreement.is_visible()
    card.hover()
    assert colors()[0] != colors()[1]
    assert agreement.inner_text() == f"{64 - distances[0, 20]} of 64 bits agree"


def test_clicking_through_and_back(open_page, address, collection, scenes):
    page = open_page(address)
    choose(page, as_file(scenes[7]))
    wait_for_query(page, "query.png")
    first = shown(page)
    page.locator(".card").nth(5).click()
    page.wait_for_url(f"**#{first[5]}")
    page.wait_for_function(
        "key => document.querySelector('.card').dataset.id === key", arg=first[5]
    )
    assert page.locator(".distance").first.inner_text() == "0"
    page.go_back()
    wait_for_query(page, "query.png")
    assert shown(page) == first
    linked = open_page(f"{address}/#{first[5]}", expected="#query:not([hidden])")
    assert shown(linked)[0] == first[5]


def test_skipping_to_the_results_keeps_the_search(open_page, address, scenes):
    page = open_page(address)
    choose(page, as_file(scenes[7]))
    wait_for_query(page, "query.png")
    before = shown(page)
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "results"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.id") == before[0]
    page.wait_for_timeout(300)
    assert "#" not in page.url
    assert shown(page) == before
    assert page.inner_text(".query-name") == "query.png"


@pytest.mark.parametrize(
    ("fragment", "message"),
    [
        ("nonsense", "The address does not match an item of this collection."),
        ("results", "The address does not match an item of this collection."),
        ("n7", "The collection contains no item with this id."),
        ("sA", "The collection contains no item with this id."),
    ],
)
def test_invalid_address_shows_message_and_start_page(open_page, address, fragment, message):
    page = open_page(f"{address}/#{fragment}")
    assert page.get_by_role("alert").inner_text() == message
    assert page.locator(".card").count() == 24
    page.locator("#others").click()
    page.wait_for_selector("#error:empty", state="attached")
    page.locator(".card").first.click()
    page.wait_for_selector("#query:not([hidden])")
    page.go_back()
    page.wait_for_selector("#query", state="hidden")
    assert page.inner_text("#error") == message


def test_options_changed_during_an_upload_are_those_of_the_upload(open_page, address, scenes):
    page = open_page(address)
    choose(page, as_file(scenes[7]))
    wait_for_query(page, "query.png")
    held = []

    def hold_the_first(route):
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/api/search", hold_the_first)
    with page.expect_request("**/api/search"):
        choose(page, as_file(scenes[8]), "slow.png")
    page.fill("#amount", "3")
    wait_for_query(page, "slow.png")
    assert len(shown(page)) == 3
    page.go_back()
    wait_for_query(page, "query.png")


def test_back_restores_the_query_after_a_reload(open_page, address):
    page = open_page(address)
    chosen = []

    def choose_another():
        chosen.append(next(key for key in shown(page)[1:] if key not in chosen))
        page.locator(f".card[data-id='{chosen[-1]}']").click()
        wait_for_first(chosen[-1])

    def wait_for_first(key):
        page.wait_for_function(
            "key => location.hash === '#' + key && !document.querySelector('#query').hidden"
            " && document.querySelector('.card').dataset.id === key",
            arg=key,
        )

    choose_another()
    choose_another()
    page.reload()
    wait_for_first(chosen[1])
    choose_another()
    page.go_back()
    wait_for_first(chosen[1])
    page.go_back()
    wait_for_first(chosen[0])


def test_radius_number_and_label(open_page, address, collection, scenes):
    page = open_page(address)
    choose(page, as_file(scenes[7]))
    wait_for_query(page, "query.png")
    code = collection.encoder.encode([scenes[7]])

    def wait_for_count(count):
        found = "1 result" if count == 1 else f"{count} results"
        page.wait_for_function(
            "text => document.querySelector('#status').textContent.startsWith(text + ' ')",
            arg=found,
        )

    page.fill("#amount", "3")
    wait_for_count(3)
    page.get_by_text("Within").click()
    assert page.get_by_label("Largest distance in bits").is_visible()
    page.fill("#amount", "30")
    (ids,), _ = collection.index.within(code, radius=30)
    wait_for_count(len(ids))
    page.get_by_label("Label", exact=True).select_option("odd")
    (ids,), _ = collection.index.within(code, radius=30, label="odd")
    wait_for_count(len(ids))
    assert shown(page) == [key_of(one) for one in ids]
    page.fill("#amount", "65")
    page.wait_for_selector("#error:not(:empty)")
    assert "Largest distance" in page.inner_text("#error")


def test_dropping_and_pasting(open_page, address, collection, scenes):
    page = open_page(address)
    give = """([bytes, name, kind]) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([new Uint8Array(bytes)], name, { type: "image/png" }));
        const event = kind === "drop"
            ? new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true })
            : new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true });
        document.body.dispatchEvent(event);
    }"""
    page.evaluate(give, [list(as_file(scenes[8])), "dropped.png", "drop"])
    wait_for_query(page, "dropped.png")
    assert shown(page) == nearest(collection, collection.encoder.encode([scenes[8]]), 24)[0]
    page.evaluate(give, [list(as_file(scenes[9])), "pasted.png", "paste"])
    wait_for_query(page, "pasted.png")
    assert shown(page) == nearest(collection, collection.encoder.encode([scenes[9]]), 24)[0]


def test_page_is_usable_by_keyboard(open_page, address):
    page = open_page(address)
    page.locator(".card").nth(1).focus()
    key = page.evaluate("document.activeElement.dataset.id")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "open"
    page.keyboard.press("Shift+Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**#{key}")
    page.wait_for_selector("#query:not([hidden])")
    page.keyboard.press("Escape")
    page.wait_for_selector("#query", state="hidden")
    assert "#" not in page.url
    assert page.locator("#others").is_visible()


@pytest.mark.parametrize("field", ["#amount", "#label"])
def test_escape_in_a_field_keeps_the_search(open_page, address, scenes, field):
    page = open_page(address)
    choose(page, as_file(scenes[7]))
    wait_for_query(page, "query.png")
    page.locator(field).focus()
    page.keyboard.press("Escape")
    page.wait_for_timeout(300)
    assert page.locator("#query").is_visible()
    page.locator(".card").first.focus()
    page.keyboard.press("Escape")
    page.wait_for_selector("#query", state="hidden")


def test_photo_without_preview_shows_the_reason(open_page, collection, serve):
    with serve(collection, limits=Limits(pixels=100)) as address:
        page = open_page(address, expected=".frame.missing")
        frame = page.locator(".frame.missing").first
        assert frame.inner_text() == "cannot be shown"
        assert "too large" in frame.get_attribute("title")


def test_an_overwritten_picture_is_shown_anew(open_page, serve, scenes, tmp_path):
    folder = tmp_path / "album"
    folder.mkdir()
    (folder / "one.png").write_bytes(as_file(np.zeros((24, 24, 3), np.uint8)))
    encoder = Encoder(create("itq", bits=16).fit(ImageSet(scenes)))
    with Photos.create(tmp_path / "album.bp", encoder) as photos:
        photos.add(folder)
    collection = Collection.open(tmp_path / "album.bp")
    level = """() => {
        const image = document.querySelector(".frame img");
        const canvas = document.createElement("canvas").getContext("2d");
        canvas.drawImage(image, 0, 0);
        return canvas.getImageData(5, 5, 1, 1).data[0];
    }"""
    loaded = "() => document.querySelector('.frame img')?.naturalWidth > 0"
    with serve(collection) as address:
        page = open_page(address)
        page.wait_for_function(loaded)
        assert page.evaluate(level) < 10
        (folder / "one.png").write_bytes(as_file(np.full((24, 24, 3), 255, np.uint8)))
        page.goto("about:blank")
        page.goto(address)
        page.wait_for_function(loaded)
        assert page.evaluate(level) > 245
    collection.index.close()


def test_page_has_accessible_names(open_page, address, scenes):
    page = open_page(address)
    choose(page, as_file(scenes[7]))
    wait_for_query(page, "query.png")
    assert page.get_by_role("status").inner_text().startswith("24 results")
    results = page.get_by_role("list", name="Results")
    buttons = results.get_by_role("button")
    assert buttons.count() == 24
    assert "64 of 64 bits agree" in buttons.first.get_attribute("aria-label")
    assert results.get_by_role("link").first.get_attribute("aria-label").startswith("Open ")
    assert page.get_by_role("heading", name="Bitprint").count() == 1
    unnamed = "nodes => nodes.filter(n => !n.labels?.length && !n.ariaLabel).length"
    assert page.eval_on_selector_all("#search input, #search select", unnamed) == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not in a supported photo format"),
        (bytes(200_000), "larger than"),
    ],
)
def test_upload_error_is_shown_and_results_stay(open_page, address, scenes, data, message):
    page = open_page(address)
    choose(page, as_file(scenes[7]))
    wait_for_query(page, "query.png")
    before = shown(page)
    choose(page, data, "bad.svg")
    page.wait_for_selector("#error:not(:empty)")
    assert message in page.get_by_role("alert").inner_text()
    assert shown(page) == before
    assert page.inner_text(".query-name") == "query.png"
    choose(page, as_file(scenes[8]), "good.png")
    wait_for_query(page, "good.png")
    assert page.inner_text("#error") == ""


def test_names_are_text_and_never_markup(open_page, address):
    page = open_page(address)
    page.fill("#amount", "40")
    page.wait_for_function("() => document.querySelectorAll('.card').length === 40")
    names = page.eval_on_selector_all(".name", "nodes => nodes.map(node => node.title)")
    assert "holidays/a space & <img onerror=alert(1)>.png" in names
    assert page.locator("img[onerror]").count() == 0


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_nothing_is_wider_than_the_screen(open_page, address, scenes, width):
    page = open_page(address, viewport={"width": width, "height": 700})
    choose(page, as_file(scenes[7]), name="a very long name of a picture " * 5 + ".png")
    page.wait_for_selector("#query:not([hidden])")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    columns = page.evaluate(
        "new Set(Array.from(document.querySelectorAll('.card'), c => c.offsetLeft + "
        "c.parentElement.offsetLeft)).size"
    )
    assert columns == {320: 2, 360: 2, 768: 3, 1280: 6}[width]


def test_light_and_dark(open_page, address):
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "node => getComputedStyle(node).color"
    contrasts = {}
    for scheme in ("light", "dark"):
        page = open_page(address, color_scheme=scheme)
        contrasts[scheme] = [
            contrast(page.locator(one).evaluate(ink), page.evaluate(ground))
            for one in ("body", "#about", "#status", ".link >> visible=true")
        ]
        contrasts[scheme + " ground"] = page.evaluate(ground)
    assert contrasts["light ground"] != contrasts["dark ground"]
    assert min(contrasts["light"] + contrasts["dark"]) >= 4.5  # WCAG AA


def contrast(*colors):
    """Return the WCAG 2 contrast ratio of two colors given as rgb(r, g, b)."""
    lights = []
    for color in colors:
        values = np.array([int(part) for part in color[4:-1].split(",")]) / 255
        linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
        lights.append(float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05)
    return max(lights) / min(lights)


def test_page_requests_and_stores_the_token(open_page, collection, serve):
    with serve(collection, token="sesame; é") as address:
        page = open_page(address, expected="#access:not([hidden])")
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("#error:not(:empty)")
        page.fill("#token", "sesame; é")
        page.keyboard.press("Enter")
        page.wait_for_selector(".card")
        page.wait_for_function("() => document.querySelector('.frame img').naturalWidth > 0")
        page.reload()
        page.wait_for_selector(".card")
        linked = open_page(f"{address}/#token=sesame%3B%20%C3%A9")
        assert "sesame" not in linked.url


def test_codes_alone_have_a_field_for_codes(open_page, codes_file, serve):
    collection = Collection.open(codes_file)
    with serve(collection) as address:
        page = open_page(address)
        assert not page.locator("#drop").is_visible()
        page.fill("#code", "abc0")
        page.keyboard.press("Enter")
        page.wait_for_selector("#query:not([hidden])")
        query = Codes(np.array([[0xAB, 0xC0]], np.uint8), 12)
        assert shown(page) == nearest(collection, query, 24)[0]
        page.fill("#code", "abc1")
        page.keyboard.press("Enter")
        page.wait_for_selector("#error:not(:empty)")
        assert "hexadecimal" in page.inner_text("#error")
    collection.index.close()


@pytest.fixture
def other_site():
    """Serve an empty page; yield its address, which is on another site than 127.0.0.1."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>other</title><h1 class=card>other</h1>")

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}/"
        server.shutdown()


UPLOAD = """async ([address, file]) => {
    const body = new FormData();
    body.append("picture", new Blob([new Uint8Array(file)]), "a.png");
    const mode = address ? "no-cors" : "cors";
    await fetch(`${address}/api/search`, { method: "POST", mode, body }).catch(() => {});
}"""


def searches(address):
    """Return the counted searches and rejected requests of a server."""
    lines = httpx.get(f"{address}/metrics", timeout=60).text.splitlines()
    counts = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return [
        int(counts.get(f'bitprint_requests_total{{route="{route}",status="{status}"}}', 0))
        for route, status in (("/api/search", 200), ("other", 403))
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "photos.lan"])
def test_upload_by_another_site_is_rejected(open_page, other_site, serve, collection, scenes, host):
    """Browsers send Sec-Fetch-Site to 127.0.0.1, and only Origin to photos.lan."""
    with serve(collection, names=["photos.lan"]) as address:
        own = address.replace("127.0.0.1", host)
        file = list(as_file(scenes[7]))
        other = open_page(other_site)
        other.evaluate(UPLOAD, [own, file])
        assert searches(address) == [0, 1]
        page = open_page(own)  # shows random results, which is a search
        page.evaluate(UPLOAD, ["", file])
        assert searches(address) == [2, 1]


def test_link_on_another_site_opens_the_page(open_page, other_site, address):
    other = open_page(other_site)
    other.evaluate("address => { location.href = address }", address)
    other.wait_for_selector("#about:has-text('40 photos')")
    other.wait_for_function("() => document.querySelector('.frame img').naturalWidth > 0")
