"""Statutes in a bucket, their messages, jobs and search results."""

from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

from accounts.system_tenant import SYSTEM_TENANT_ID
from embeddings.search.hybrid_search import search
from jobs.models import UploadJob
from statutes import document_ids
from statutes.intake import accept_message
from statutes.models import LawVersion
from statutes.sqs.message_schema import Message
from testing.fakes.s3 import S3Server
from testing.personas import run_all_jobs

BUCKET = "laws"
KEY = "raw/federal/2024/ley-iva.xml"
# Each is long enough to be a passage of its own.
TAXED = "Las personas físicas pagarán el impuesto por la enajenación de bienes en territorio nacional. " * 14
RATE = "El impuesto se calculará aplicando la tasa del dieciséis por ciento a los valores señalados. " * 14
LOWER = "El impuesto se calculará aplicando la tasa del ocho por ciento en la región fronteriza norte. " * 14


def law_xml(*articles: str, title: str = "Ley del Impuesto al Valor Agregado") -> bytes:
    body = "".join(
        f"<article><num>Artículo {number}</num><p>{escape(text)}</p></article>"
        for number, text in enumerate(articles, 1)
    )
    return f'<?xml version="1.0" encoding="UTF-8"?><law><title>{title}</title>{body}</law>'.encode()


def put_file(s3: S3Server, content: bytes, *, key: str = KEY, tags: str = "") -> None:
    client = s3.client()
    client.put_object(Bucket=BUCKET, Key=key, Body=content, Tagging=tags)
    client.close()


def bucket_objects(s3: S3Server, prefix: str = "") -> dict[str, bytes]:
    """Return what lies in the bucket below a prefix."""
    client = s3.client()
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    contents = {each["Key"]: client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read() for each in listed}
    client.close()
    return contents


def statute_message(version: str = "2024-01", **fields: Any) -> Message:
    defaults: dict[str, Any] = {
        "law_id": "LIVA",
        "raw_key": KEY,
        "bucket": BUCKET,
        "uploader_id": "user-42",
        "ingest_timestamp": datetime(2025, 1, 12, 15, 31, tzinfo=UTC),
    }
    return Message(version=version, **(defaults | fields))


def deliver(s3: S3Server, content: bytes, version: str = "2024-01", **fields: Any) -> Message:
    """Put a file into the bucket and its message's job into the queue."""
    sent = statute_message(version, **fields)
    put_file(s3, content, key=sent.raw_key)
    accept_message(sent)
    return sent


def process(s3: S3Server, content: bytes, version: str = "2024-01", **fields: Any) -> UploadJob:
    """Let a worker carry a law to its end, whatever that is."""
    sent = deliver(s3, content, version, **fields)
    run_all_jobs()
    return job_of(sent)


def job_of(sent: Message) -> UploadJob:
    """Return the newest job of a message's version."""
    mine = UploadJob.objects.filter(document_id__in=document_ids.document_ids(sent.law_id, sent.version))
    return mine.order_by("-created_at")[0]


def version_of(sent: Message) -> LawVersion:
    """Return the row of a message's version; of two, the one that was begun last."""
    return LawVersion.objects.filter(law_id=sent.law_id, version=sent.version).order_by("-created_at")[0]


def search_texts(query: str = "tasa del impuesto") -> list[str]:
    """Return the texts that a search of the corpus finds."""
    return sorted(passage.text for passage in search(user_id=SYSTEM_TENANT_ID, query=query, k=20))


def are_searchable(*texts: str) -> list[bool]:
    """Tell which of the texts are found."""
    shown = "\n".join(search_texts())
    return [text.strip() in shown for text in texts]
