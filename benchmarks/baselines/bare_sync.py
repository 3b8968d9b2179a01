"""Baseline for connectors: a loop that fetches a page, embeds each text and commits per record, without recovery."""

import hashlib
import json
import sys
import time
from uuid import uuid4

import django

TABLE = """
    CREATE TABLE IF NOT EXISTS bare_records (external_id text PRIMARY KEY, document_type text, payload jsonb, text text,
        sha bytea, embedding vector(1536))"""
CLIENTS = """
    CREATE TABLE IF NOT EXISTS bare_clients (external_id text PRIMARY KEY, name text, facts jsonb)"""
UPSERT = """
    INSERT INTO bare_records VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (external_id) DO UPDATE SET
        payload = excluded.payload, text = excluded.text, sha = excluded.sha, embedding = excluded.embedding"""
CLIENT = """
    INSERT INTO bare_clients VALUES (%s, %s, %s) ON CONFLICT (external_id) DO UPDATE SET
        name = excluded.name, facts = excluded.facts"""
BATCH = 32


def main(records: int) -> float:
    from django.db import connection, transaction  # noqa: PLC0415  needs the settings
    from pgvector import Vector  # noqa: PLC0415

    from integrations.models import ConnectedSource  # noqa: PLC0415
    from testing.embedders import InstantEmbedder  # noqa: PLC0415
    from testing.fakes.instant_provider import mapping  # noqa: PLC0415
    from testing.fakes.instant_provider.rest import Client  # noqa: PLC0415

    client, embedder = Client(ConnectedSource(user_id=uuid4(), provider="hubspot"), None), InstantEmbedder()
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        cursor.execute(CLIENTS)
        cursor.execute("TRUNCATE bare_records, bare_clients")
    began, done = time.perf_counter(), 0
    for stream in mapping.STREAMS:
        if stream.name not in ("contacts", "companies", "deals"):
            continue
        page_token: str | None = None
        while True:
            page = client.page(stream, "full_sync", None, page_token)
            mapped = [mapping.map_record(item) for item in page.items]
            vectors = [
                row
                for at in range(0, len(mapped), BATCH)
                for row in embedder.embed([one.text for one in mapped[at : at + BATCH]])
            ]
            for item, one, vector in zip(page.items, mapped, vectors, strict=True):
                sha = hashlib.sha256(one.text.encode()).digest()
                with transaction.atomic(), connection.cursor() as cursor:
                    cursor.execute(
                        UPSERT,
                        [item.external_id, item.document_type, json.dumps(item.payload), one.text, sha,
                         str(Vector(vector).to_text())],
                    )  # fmt: skip
                    if stream.name != "deals":
                        cursor.execute(CLIENT, [item.external_id, one.title, json.dumps(one.facts)])
            done += len(page.items)
            page_token = page.next_page
            if page_token is None:
                break
    return done / (time.perf_counter() - began)


if __name__ == "__main__":
    django.setup()
    print(json.dumps(main(int(sys.argv[1]))))
