"""Page images and boxes: the right page, the right words, for the owner only, whatever the file does."""

import io
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pypdfium2
import pytest
from django.db.models.functions import Now
from django.test import Client
from PIL import Image
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

from accounts.errors import ApiError
from documents.models import Document
from documents.page_images import passage_boxes, renderer
from documents.page_images.renderer import Box, locate_passage, render_page
from documents.parsers.failures import parse_failure
from documents.parsers.sandbox.client import ROOT, SandboxClient
from documents.storage import buckets, file_cache
from documents.tests.s3_settings import use_s3_storage
from testing import pdf_bombs
from testing.fakes.s3 import S3Server
from testing.pdfs import build_pdf, content_stream, encrypted_pdf, page_objects, text_operators, text_pdf
from testing.personas import Person

pytestmark = pytest.mark.django_db

StoreDocument = Callable[..., Document]
SENTENCE = "You pay nothing for preventive care within the network of this plan."
OTHERS = [f"Rule {n}: other services cost {n * 7} percent after the deductible of {n * 100}." for n in range(1, 9)]


@pytest.fixture
def store_document(ana: Person) -> StoreDocument:
    """Upload a file of Ana's as if the first stage had checked it."""

    def store(content: bytes, pages: int | None = None) -> Document:
        uploaded = ana.upload(content)
        Document.objects.filter(pk=uploaded.document_id).update(stored_at=Now(), pages=pages)
        return Document.objects.get(pk=uploaded.document_id)

    return store


def draw_pdf(*pages: Callable[[Canvas], None], size: tuple[float, float] = (612, 792)) -> bytes:
    pdf = io.BytesIO()
    canvas = Canvas(pdf, pagesize=size, invariant=True)
    for draw in pages:
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return pdf.getvalue()


def draw_sentence(canvas: Canvas) -> None:
    """Draw the sentence in red over two lines, among other lines in black."""
    for number, line in enumerate(OTHERS):
        canvas.drawString(60, 700 - 40 * number, line)
    canvas.setFillColorRGB(1, 0, 0)
    canvas.drawString(60, 340, "You pay nothing for preventive care within the net-")
    canvas.drawString(60, 325, "work of this plan.")


def alter_pdf(content: bytes, change: Callable[[Any], None]) -> bytes:
    document, pdf = pypdfium2.PdfDocument(content), io.BytesIO()
    change(document[0])
    document.save(pdf)
    return pdf.getvalue()


def open_jpeg(picture: bytes) -> Image.Image:
    return Image.open(io.BytesIO(picture)).convert("RGB")


def render_error(document: Document, page: int = 1) -> ApiError:
    with pytest.raises(ApiError) as refused:
        render_page(document, page)
    return refused.value


# Pictures


def colour_page(red: float, green: float, blue: float, *size: float) -> Callable[[Canvas], None]:
    def draw(canvas: Canvas) -> None:
        canvas.setPageSize(size)
        canvas.setFillColorRGB(red, green, blue)
        canvas.rect(0, 0, *size, fill=1)

    return draw


def test_the_requested_page_is_rendered(store_document: StoreDocument) -> None:
    document = store_document(
        draw_pdf(colour_page(1, 0, 0, 300, 300), colour_page(0, 1, 0, 300, 600), colour_page(0, 0, 1, 600, 300))
    )

    shown = [open_jpeg(render_page(document, page, width=200)) for page in (1, 2, 3)]

    assert [picture.size for picture in shown] == [(200, 200), (200, 400), (200, 100)]
    for number, picture in enumerate(shown):
        colour = picture.getpixel((100, 50))
        assert isinstance(colour, tuple)
        assert [value > 200 for value in colour] == [number == place for place in range(3)]


@pytest.mark.parametrize(("width", "rendered"), [(1, 100), (10**9, 1600)])
def test_the_width_of_a_page_image_is_clamped(store_document: StoreDocument, width: int, rendered: int) -> None:
    assert open_jpeg(render_page(store_document(text_pdf("words")), 1, width=width)).width == rendered


def test_a_very_long_page_is_rendered_narrower(store_document: StoreDocument) -> None:
    assert open_jpeg(render_page(store_document(draw_pdf(draw_sentence, size=(300, 6000))), 1)).size == (125, 2500)


def test_a_page_too_thin_to_be_seen_is_refused(store_document: StoreDocument) -> None:
    assert render_error(store_document(draw_pdf(draw_sentence, size=(3, 14_000)))).code == "PAGE_NOT_SHOWN"


def test_an_encrypted_file_that_opens_without_a_password_is_shown(store_document: StoreDocument) -> None:
    empty, locked = text_pdf(""), encrypted_pdf("A clause under seal")

    assert render_page(store_document(locked), 1) != render_page(store_document(empty), 1)


# Boxes


def red_pixels(picture: Image.Image) -> Iterator[tuple[int, int]]:
    for number, (red, green, blue) in enumerate(zip(*[iter(picture.tobytes())] * 3, strict=True)):
        if red > 150 and green < 100 and blue < 100:
            yield number % picture.width, number // picture.width


def covers(box: Box, x: float, y: float) -> bool:
    return box.x - 1 <= x <= box.x + box.width + 1 and box.y - 1 <= y <= box.y + box.height + 1


@pytest.mark.parametrize("cropped", [False, True], ids=["whole", "cropped"])
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_boxes_cover_the_words_of_rotated_and_cropped_pages(
    store_document: StoreDocument, rotation: int, cropped: bool
) -> None:
    def change(page: Any) -> None:
        page.set_rotation(rotation)
        if cropped:
            page.set_mediabox(-40, -30, 640, 800)
            page.set_cropbox(20, 300, 500, 760)

    document = store_document(alter_pdf(draw_pdf(draw_sentence), change))

    location = locate_passage(document, 1, SENTENCE)

    picture = open_jpeg(render_page(document, 1, width=600))
    scale = picture.width / location.width
    points = [(x / scale, y / scale) for x, y in red_pixels(picture)]
    assert len(points) > 100
    assert picture.height == pytest.approx(location.height * scale, abs=1)
    assert len(location.boxes) == 2
    assert all(any(covers(box, x, y) for box in location.boxes) for x, y in points)
    assert sum(box.width * box.height for box in location.boxes) < 7000


def test_a_box_covers_the_printed_words(store_document: StoreDocument) -> None:
    document = store_document(draw_pdf(draw_sentence))

    first, second = locate_passage(document, 1, SENTENCE).boxes

    begin = stringWidth("You ", "Helvetica", 12)
    assert first.x == pytest.approx(60, abs=1.5)
    assert first.width == pytest.approx(
        stringWidth("You pay nothing for preventive care within the net-", "Helvetica", 12), abs=2
    )
    assert first.y < 792 - 340 < first.y + first.height < 792 - 340 + 5
    assert second.y < 792 - 325 < second.y + second.height
    assert begin < second.width < first.width


@pytest.mark.parametrize(
    "passage",
    [
        "**You pay nothing** for _preventive care_ within the network of this plan.",
        "## You pay\n\nnothing for preventive\ncare within   the net\u00adwork of this plan.",
        "| You pay | nothing |\n|---|---|\n| for preventive care | within the network of this plan |",
        "YOU PAY NOTHING FOR [preventive care](https://example.org/care) WITHIN THE NETWORK OF THIS PLAN",
    ],
)
def test_markdown_syntax_does_not_prevent_a_match(store_document: StoreDocument, passage: str) -> None:
    document = store_document(draw_pdf(draw_sentence))

    assert locate_passage(document, 1, passage).boxes == locate_passage(document, 1, SENTENCE).boxes != []


def test_a_passage_over_two_pages_is_located_on_each(store_document: StoreDocument) -> None:
    def end(canvas: Canvas) -> None:
        canvas.drawString(60, 60, "The plan covers forty visits of physical therapy a year")

    def begin(canvas: Canvas) -> None:
        canvas.drawString(60, 740, "when your physician has ordered them in writing beforehand.")

    document = store_document(draw_pdf(end, begin))
    passage = (
        "The plan covers forty visits of physical therapy a year when your physician has ordered them in"
        " writing beforehand."
    )

    assert [len(locate_passage(document, page, passage).boxes) for page in (1, 2)] == [1, 1]


@pytest.mark.parametrize(
    "passage",
    [
        "",
        "****",
        "Nothing of this sentence was ever printed anywhere in the file, not one clause.",
        "percent",
        "Rule 99",
    ],
)
def test_an_ambiguous_passage_has_no_boxes(store_document: StoreDocument, passage: str) -> None:
    assert locate_passage(store_document(draw_pdf(draw_sentence)), 1, passage).boxes == []


def test_a_page_without_text_has_no_boxes(store_document: StoreDocument) -> None:
    location = locate_passage(store_document(draw_pdf(colour_page(1, 0, 0, 300, 300))), 1, SENTENCE)

    assert (location.width, location.height, location.boxes) == (300, 300, [])


def test_repeated_words_are_located_near_the_rest_of_the_passage() -> None:
    blocks = [f"service{name}costs{name * 3}percentinnetworkyoupay" for name in ("alpha", "beta", "gamma", "delta")]
    page = "".join(block + str(number) * 400 for number, block in enumerate(blocks))
    text = "innetworkyoupayservicegammacostsgammagammagammapercent"

    spans = passage_boxes.find_spans(page, text)

    assert sorted(page[start:end] for start, end in spans) == ["innetworkyoupay", text.removeprefix("innetworkyoupay")]
    assert {page.index(blocks[2]) <= start < end <= page.index(blocks[2]) + len(blocks[2]) for start, end in spans} == {
        True
    }


def test_a_few_words_in_common_are_no_match() -> None:
    page = "yourplanpaysforotherservicescostwhateverthebookletsays"
    text = "thedentistsbillstatesthatotherservicescostflatfeesinanyyearunlesstheinsurerwaivesthem"

    assert passage_boxes.find_spans(page, text) == []


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a" * 60_000, "a" * 20_000),
        ("a" * 60_000, ("a" * 23 + "b") * 800),
        ("abcdefghijkl" * 5000, "abcdefghijklx" * 1500),
    ],
)
def test_time_to_align_grows_with_the_text_and_no_faster(page: str, text: str) -> None:
    before = time.process_time()
    passage_boxes.find_spans(page, text)

    assert time.process_time() - before < 2


# What a file may do


@pytest.mark.parametrize(
    "content",
    [
        pdf_bombs.flate_once,
        pdf_bombs.cyclic_tree,
        lambda: text_pdf("x").replace(b"/Kids", b"/Gone"),
        lambda: b"%PDF-1.7 nothing else %%EOF",
        lambda: encrypted_pdf("secret", user_password=b"unknown"),
    ],
    ids=["bomb", "cyclic", "no pages", "malformed", "password"],
)
def test_a_page_that_cannot_be_rendered_has_a_code_and_kills_nothing(
    store_document: StoreDocument, content: Callable[[], bytes]
) -> None:
    document = store_document(content())
    assert render_error(document).code in ("PAGE_NOT_SHOWN", "PAGE_NOT_FOUND")

    before = time.monotonic()
    assert render_error(document).status in (404, 422)

    assert time.monotonic() - before < 2, "a hopeless page is tried once"
    assert render_page(store_document(text_pdf("another")), 1)


def test_a_page_is_rendered_although_one_of_its_images_is_a_bomb(store_document: StoreDocument) -> None:
    assert render_page(store_document(pdf_bombs.pixel_flood()), 1)


def test_the_child_knows_no_django() -> None:
    code = "import sys, documents.page_images.page_fork_server; sys.exit('django' in sys.modules)"

    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_request_that_waits_too_long_gets_503_with_retry_after(
    store_document: StoreDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = store_document(text_pdf("words"))
    monkeypatch.setattr(renderer, "QUEUE_SECONDS", 0.05)

    with ExitStack() as others:
        for _ in range(renderer.MAX_CONCURRENT):
            others.enter_context(renderer._sandbox())
        busy = render_error(document)

    assert (busy.code, busy.status, bool(busy.retry_after)) == ("UNAVAILABLE", 503, True)
    assert render_page(document, 1)


def test_too_many_waiting_requests_get_503_at_once(store_document: StoreDocument) -> None:
    document = store_document(text_pdf("words"))

    with ExitStack() as others:
        for _ in range(renderer.MAX_WAITING):
            others.enter_context(renderer._admission(uuid4()))
        before = time.monotonic()
        busy = render_error(document)
        spent = time.monotonic() - before

    assert (busy.code, busy.status, bool(busy.retry_after)) == ("UNAVAILABLE", 503, True)
    assert spent < 5
    assert render_page(document, 1)


def test_the_limit_of_one_tenant_leaves_room_for_others(ana: Person, store_document: StoreDocument) -> None:
    document = store_document(text_pdf("words"))

    with ExitStack() as own:
        for _ in range(renderer.MAX_WAITING_PER_TENANT):
            own.enter_context(renderer._admission(ana.id))
        assert render_error(document).code == "UNAVAILABLE"
        with renderer._admission(uuid4()):
            pass

    assert render_page(document, 1)


def test_a_passage_that_fails_to_locate_does_not_hide_the_page(
    store_document: StoreDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = store_document(text_pdf("words"))
    with monkeypatch.context() as slow:
        slow.setattr(SandboxClient, "request", Mock(side_effect=parse_failure("cpu")))
        with pytest.raises(ApiError):
            locate_passage(document, 1, "one")

    with pytest.raises(ApiError):
        locate_passage(document, 1, "one")

    assert render_page(document, 1)
    assert locate_passage(document, 1, "another").boxes == []


def test_page_views_are_limited_and_a_304_costs_none(ana: Person, store_document: StoreDocument, settings: Any) -> None:
    settings.PAGE_VIEWS_PER_MINUTE = 2
    document = store_document(text_pdf("words"), pages=1)
    ana.get(path(document))
    tag = ana.get(path(document))["ETag"]

    refused = ana.get(path(document))
    again = ana.client.get(path(document), headers={"if-none-match": tag})

    assert (refused.status_code, refused.json()["code"]) == (429, "LOOK_LIMIT_REACHED")
    assert 0 < int(refused["Retry-After"]) <= 60
    assert again.status_code == 304


# In the API


def path(document: Document, page: object = 1) -> str:
    return f"/documents/{document.pk}/pages/{page}"


def test_the_api_shows_a_page_to_bearer_and_session(ana: Person, store_document: StoreDocument) -> None:
    document = store_document(text_pdf("words"), pages=1)
    browser = Client()
    browser.force_login(ana.user)

    answers = [ana.get(path(document), width=300), browser.get(path(document), {"width": 300})]

    for answer in answers:
        assert (answer.status_code, answer["Content-Type"]) == (200, "image/jpeg")
        assert open_jpeg(answer.content).width == 300
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Content-Security-Policy"] == "default-src 'none'"
        assert answer["Cache-Control"].startswith("private, max-age=")
    assert ana.client.get(path(document), headers={"accept": "image/avif"}).status_code == 200
    assert Client().get(path(document)).status_code == 401


def test_a_matching_etag_is_304_without_rendering(ana: Person, store_document: StoreDocument) -> None:
    document = store_document(text_pdf("words"), pages=1)
    tag = ana.get(path(document))["ETag"]

    again = ana.client.get(path(document), headers={"if-none-match": f'W/"x", {tag}'})
    other = ana.client.get(path(document) + "?width=500", headers={"if-none-match": tag})

    assert (again.status_code, again.content, again["ETag"]) == (304, b"", tag)
    assert other.status_code == 200


def test_a_page_of_another_tenant_is_404(ana: Person, ben: Person, store_document: StoreDocument) -> None:
    document = store_document(text_pdf("words"), pages=1)
    tag = ana.get(path(document))["ETag"]

    foreign = ben.client.get(path(document), headers={"if-none-match": tag})
    absent = ben.get(f"/documents/{uuid4()}/pages/1")

    assert foreign.status_code == absent.status_code == 404
    assert foreign.json() == absent.json()
    document.user_id = ben.id
    assert render_error(document).code == "NOT_FOUND"


@pytest.mark.parametrize(
    ("page", "query", "status", "code"),
    [
        (0, {}, 404, "PAGE_NOT_FOUND"),
        (3, {}, 404, "PAGE_NOT_FOUND"),
        (10**30, {}, 404, "PAGE_NOT_FOUND"),
        (-1, {}, 404, "NOT_FOUND"),
        (1, {"width": 99}, 400, "INVALID_REQUEST"),
        (1, {"width": 1601}, 400, "INVALID_REQUEST"),
        (1, {"width": "wide"}, 400, "INVALID_REQUEST"),
    ],
)
@pytest.mark.parametrize("counted", [True, False], ids=["counted", "not counted yet"])
def test_an_invalid_parameter_is_named(
    ana: Person, store_document: StoreDocument, page: int, query: dict[str, Any], status: int, code: str, counted: bool
) -> None:
    document = store_document(text_pdf("one", "two"), pages=2 if counted else None)

    answer = ana.get(path(document, page), **query)

    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_page_before_the_upload_is_not_ready(ana: Person) -> None:
    document = Document.objects.get(pk=ana.request_upload(text_pdf("words")).json()["document_id"])

    answer = ana.get(path(document))

    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_READY")


def test_other_bytes_than_were_declared_are_not_shown(store_document: StoreDocument, settings: Any) -> None:
    document = store_document(text_pdf("declared"))
    original = Path(settings.STORAGE_ROOT, document.raw_path.removeprefix("storage://"))
    original.write_bytes(text_pdf("exchange"))

    assert render_error(document).code == "PAGE_NOT_SHOWN"


# Files from afar


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def remote_document(ana: Person, server: S3Server, settings: Any) -> StoreDocument:
    use_s3_storage(settings, server, S3_PRESIGN=False)

    def store(content: bytes) -> Document:
        uploaded = ana.upload(content)
        Document.objects.filter(pk=uploaded.document_id).update(stored_at=Now())
        return Document.objects.get(pk=uploaded.document_id)

    return store


def cached_files(settings: Any) -> list[Path]:
    return list(Path(settings.STORAGE_ROOT, file_cache.FOLDER).glob("*"))


@pytest.mark.slow
def test_a_cached_file_of_a_deleted_document_is_not_shown(
    ana: Person, remote_document: StoreDocument, settings: Any
) -> None:
    document = remote_document(text_pdf("words"))
    assert ana.get(path(document)).status_code == 200
    assert [file.name.split(".")[0] for file in cached_files(settings)] == [str(document.pk)]

    assert ana.delete(f"/documents/{document.pk}").status_code == 204

    assert ana.get(path(document)).status_code == 404
    assert render_error(document).code == "NOT_FOUND"
    assert cached_files(settings) == []


def test_a_second_page_needs_no_second_fetch(remote_document: StoreDocument, server: S3Server) -> None:
    document = remote_document(text_pdf("one", "two"))
    first = render_page(document, 1)
    bucket, name = buckets.locate(document.raw_path)
    bucket.delete(name)

    assert render_page(document, 2) != first


@pytest.mark.slow
def test_the_cache_is_bounded_in_size_and_age(
    remote_document: StoreDocument, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [remote_document(text_pdf(text)) for text in ("one", "two", "three")]
    monkeypatch.setattr(file_cache, "MAX_BYTES", 2 * max(document.bytes_len for document in documents))
    for document in documents:
        render_page(document, 1)
    assert len(cached_files(settings)) == 2

    monkeypatch.setattr(file_cache, "MAX_AGE_SECONDS", 0.0)
    file_cache.evict_expired()

    assert cached_files(settings) == []


def test_an_unavailable_store_is_reported(remote_document: StoreDocument, settings: Any) -> None:
    document = remote_document(text_pdf("words"))
    settings.S3_ENDPOINT_URL = "http://127.0.0.1:9"
    settings.STORAGES = dict(settings.STORAGES)

    assert render_error(document).code == "STORAGE_UNAVAILABLE"


def test_hand_written_pages_of_odd_shapes_are_shown_or_refused(store_document: StoreDocument) -> None:
    odd = [b"/UserUnit 1000", b"/CropBox [0 0 0 0]", b"/CropBox [9999 9999 10000 10000]", b"/Rotate 45"]

    for extra in odd:
        document = store_document(build_pdf(page_objects([content_stream(text_operators("words"))], page=extra)))
        try:
            assert open_jpeg(render_page(document, 1)).width <= renderer.MAX_WIDTH
            locate_passage(document, 1, "words")
        except ApiError as refused:
            assert refused.code == "PAGE_NOT_SHOWN"  # noqa: PT017 - either is right
