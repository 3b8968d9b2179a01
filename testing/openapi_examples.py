"""Request and response examples of the OpenAPI schema, recorded from the API with one document."""

from typing import Any
from uuid import UUID

from django.test import Client

from jobs import worker
from outbox import error_codes, queue
from outbox.attempts import Attempt
from outbox.webhooks import endpoints
from testing.factories.records import create_record, create_source
from testing.factories.searchable_statutes import create_searchable_statute
from testing.fuzzing import SECRET
from testing.personas import Person, plan_pdf, upload_request
from vendors.models import Purchase

NOWHERE = UUID(int=4)
SHOWN_NUMBERS = 3  # of a vector's 1,536
BOUGHT: dict[str, Any] = {"stage": "job_validated", "vendor": "llamaparse", "model": "cost_effective"}
BOUGHT |= {"unit": "pages", "quantity": 1, "cents": "0.375"}
QUESTION = {
    "query": "What does the plan pay for therapy?",
    "k": 1,
    "sources": ["documents", "hubspot", "statutes"],
    "filters": {"pages": [1, 20]},
}
LINK = "https://app.hubspot.com/contacts/1/company/512"
ACT = f"Section 12. {'A health plan pays for therapy that a physician has ordered. ' * 18}"
COMPANY = "Northwind Therapy runs twelve clinics. Renewal of their plan in June."


class ExampleCollector:
    """Remembers what was asked and answered, by operation and status."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def add(self, operation: str, answer: Any, request: Any = None) -> Any:
        body = answer.json()
        example = self.found.setdefault(operation, {"answers": {}})
        if request is not None and answer.status_code < 300:
            example["request"] = request
        example["answers"][str(answer.status_code)] = body
        return body


def collect_examples(ana: Person, platform: Person) -> dict[str, Any]:
    """Carry a document of Ana's from its declaration to an answer, and return what was said.

    Needs BRAIN_API_SECRET to be ``SECRET``.
    """
    noted = ExampleCollector()
    note = noted.add
    pdf = plan_pdf("therapy")
    file = upload_request(pdf) | {"ocr": False}
    declared = note("upload", ana.post("/upload", file), file)
    note("upload", ana.post("/upload", file | {"sha256": "unknown"}))
    note("put_bytes", ana.client.put(declared["signed_url"], b"%PDF-1.7", content_type="application/pdf"))
    ana.client.put(declared["signed_url"], pdf, content_type="application/pdf")
    note("document_parsed", ana.get(f"/documents/{declared['document_id']}/parsed"))
    worker.drain()
    _done(note, ana, declared)
    _failed(note, ana, platform)
    _webhooks(note, ana)
    texts = {"texts": ["What is the deductible?"]}
    embedded = ana.post("/internal/embed", texts, headers={"authorization": f"Bearer {SECRET}"})
    note("internal_embed", embedded, texts)["embeddings"][0][SHOWN_NUMBERS:] = []
    return noted.found


def _done(note: Any, ana: Person, declared: dict[str, Any]) -> None:
    document = f"/documents/{declared['document_id']}"
    Purchase.objects.create(user_id=ana.id, document_id=declared["document_id"], state="settled", **BOUGHT)
    _tags(note, ana, document)
    for operation, path in (
        ("job", f"/job/{declared['job_id']}"),
        ("document_job", f"/jobs/{declared['document_id']}"),
        ("jobs", "/jobs"),
        ("documents", "/documents"),
        ("document", document),
        ("document_original", f"{document}/original"),
        ("document_parsed", f"{document}/parsed"),
        ("document_chunks", f"{document}/chunks?page_size=1"),
        ("document_purchases", f"{document}/purchases"),
        ("usage", "/usage"),
        ("cutover", "/cutover"),
    ):
        note(operation, ana.client.get(path))
        note(operation, Client().get(path))
    for operation, path in (("job", f"/job/{NOWHERE}"), ("document", f"/documents/{NOWHERE}")):
        note(operation, ana.client.get(path))
    create_record(create_source(ana.id), "company:512", COMPANY, title="Northwind Therapy", url=LINK)
    create_searchable_statute("HEALTH_2024", ACT, title="Health Plans Act")
    note("search", ana.post("/search", QUESTION), QUESTION)
    note("search", ana.post("/search", {"query": "deductible", "k": 0}))
    asked = {"question": "and in your network?", "history": [{"question": "What does the plan pay for therapy?"}]}
    note("answer", ana.post("/answer", asked), asked)
    note("answer", ana.post("/answer", {"question": "what is it?"}))
    note("retry_job", ana.post(f"/jobs/{declared['document_id']}/retry"))
    _tokens(note, ana)


def _tags(note: Any, ana: Person, document: str) -> None:
    wanted = {"name": "2026", "color": "blue"}
    tag = note("create_tag", ana.post("/tags", wanted), wanted)
    note("tags", ana.get("/tags"))
    note("tag", ana.get(f"/tags/{tag['tag_id']}"))
    changes = {"name": "Plan 2026"}
    note("change_tag", ana.patch(f"/tags/{tag['tag_id']}", changes), changes)
    renamed = {"filename": "Gold plan 2026.pdf", "tags": [tag["tag_id"]]}
    note("change_document", ana.patch(document, renamed), renamed)
    note("change_document", ana.patch(document, {"tags": [str(NOWHERE)]}))


def _tokens(note: Any, ana: Person) -> None:
    wanted = {"name": "nightly upload", "scopes": ["read", "write"], "days": 90}
    created = note("create_token", ana.post("/tokens", wanted), wanted)
    created["token"] = "acc_…"
    note("create_token", ana.post("/tokens", wanted | {"scopes": ["root"]}))
    note("tokens", ana.get("/tokens"))


def _webhooks(note: Any, ana: Person) -> None:
    wanted = {"url": "https://hooks.example.com/accessa", "events": ["document.failed"]}
    created = note("create_webhook_endpoint", ana.post("/webhook-endpoints", wanted), wanted)
    created["secret"] = "whsec_…"
    note("create_webhook_endpoint", ana.post("/webhook-endpoints", {"url": "https://127.0.0.1/"}))
    path = f"/webhook-endpoints/{created['id']}"
    note("webhook_endpoints", ana.get("/webhook-endpoints"))
    note("webhook_endpoint", ana.get(path))
    changes = {"events": ["document.completed", "document.failed"]}
    note("change_webhook_endpoint", ana.patch(path, changes), changes)
    note("rotate_webhook_secret", ana.post(f"{path}/rotate"))["secret"] = "whsec_…"
    endpoints.publish(user_id=ana.id, type="document.failed", data={"document_id": NOWHERE, "code": "NOT_A_PDF"})
    (message,) = queue.claim_due()
    queue.settle(message, Attempt(error_codes.WEBHOOK_STATUS, 503), 87)
    note("webhook_deliveries", ana.get(f"{path}/deliveries"))
    note("resend_webhook", ana.post(f"{path}/deliveries/{message.pk}/resend"))


def _failed(note: Any, ana: Person, platform: Person) -> None:
    failed = ana.ingest(b"not a PDF", filename="letter.pdf")
    note("retry_job", ana.post(f"/jobs/{failed.document_id}/retry"))
    note("advance_job", platform.post(f"/jobs/{failed.document_id}/advance"))
    note("advance_job", ana.post(f"/jobs/{failed.document_id}/advance"))
