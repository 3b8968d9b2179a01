"""Baseline for statutes: a script that reads a message, parses, chunks, embeds and uploads, without crash recovery."""

import hashlib
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid5

from benchmarks import moto_server

MOST_SECONDS = 20


def ingest_message(s3: Any, sqs: Any, queue_url: str) -> float:
    """Work on the queue's one message; return the seconds from its receipt to its deletion."""
    (message,) = sqs.receive_message(QueueUrl=queue_url, WaitTimeSeconds=MOST_SECONDS)["Messages"]
    began = time.perf_counter()
    message_body = json.loads(message["Body"])
    law_id = message_body["document_id"]
    with TemporaryDirectory() as folder:
        path = Path(folder, Path(message_body["s3_raw_key"]).name)
        s3.download_file(moto_server.BUCKET, message_body["s3_raw_key"], str(path))
        objects = _objects(path, law_id)
    manifest = {key: hashlib.sha256(content).hexdigest() for key, content in objects.items()}
    with ThreadPoolExecutor(moto_server.CONCURRENT_UPLOADS) as pool:
        list(
            pool.map(lambda each: s3.put_object(Bucket=moto_server.BUCKET, Key=each[0], Body=each[1]), objects.items())
        )
    s3.put_object(
        Bucket=moto_server.BUCKET, Key=f"bare/normalized/{law_id}/manifest.json", Body=json.dumps(manifest).encode()
    )
    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    return time.perf_counter() - began


def _objects(path: Path, law_id: str) -> dict[str, bytes]:
    from documents.deterministic_ids import NAMESPACE  # noqa: PLC0415  needs the settings
    from documents.parsers import pdf_engines  # noqa: PLC0415
    from documents.parsers.sandbox import rlimits  # noqa: PLC0415
    from statutes import article_chunker  # noqa: PLC0415
    from statutes.readers import docx, pdf, xml  # noqa: PLC0415
    from statutes.structure import markdown  # noqa: PLC0415
    from testing.embedders import InstantEmbedder  # noqa: PLC0415

    if path.suffix == ".pdf":
        law = pdf.read_pdf(pdf.page_texts(pdf_engines.open_document(path)), {})
        rlimits.limit_cpu_time(0)  # the last page's clock would end this process, which is no child
    else:
        read = {".xml": xml.read_xml, ".docx": docx.read_docx}[path.suffix]
        law = read(path.read_bytes())
    rendered = markdown.render_markdown(law)
    chunks = article_chunker.CHUNKER.split(rendered.text, rendered.page_starts)
    vectors = InstantEmbedder().embed([chunk.text for chunk in chunks])
    objects = {
        f"bare/normalized/{law_id}/law.json": json.dumps(law.as_json(law_id=law_id, version="1", source={})).encode()
    }
    lines = []
    for chunk, vector in zip(chunks, vectors, strict=True):
        chunk_id = str(uuid5(NAMESPACE, f"{law_id}:{chunk.ord}"))
        passage = {"chunk_id": chunk_id, "law_id": law_id, "chunk_text": chunk.text, "chunk_meta": chunk.meta}
        objects[f"bare/chunks/{law_id}/{chunk_id}.json"] = json.dumps(passage).encode()
        record = {"chunk_id": chunk_id, "vector": vector.tolist(), "law_id": law_id, "metadata": chunk.meta}
        lines.append(json.dumps(record))
    objects[f"bare/embeddings/{law_id}_vectors.jsonl"] = "\n".join(lines).encode()
    return objects


def main(endpoint: str, queue_url: str, laws: int) -> list[float]:
    """Carry so many laws, one after the other, and return the seconds of each."""
    s3, sqs = moto_server.client("s3", endpoint), moto_server.client("sqs", endpoint)
    return [ingest_message(s3, sqs, queue_url) for _ in range(laws)]


if __name__ == "__main__":
    import django

    django.setup()
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
