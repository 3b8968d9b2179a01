"""The statutes in a minute: three laws from a queue's messages to a bucket's artifacts, and to cited answers."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from accessa.demo.client import ApiClient
from accessa.demo.fake_aws import DEAD, QUEUE, Aws, Stored
from accessa.demo.statute_messages import OURS, NotEnacted, Rounds, Sample
from embeddings.search.query import TEXT
from embeddings.search.snippets import strip_marks
from statutes.models import Consumer, Law, LawVersion
from statutes.s3 import keys

LAWS = ("law", "version", "status", "language", "passages", "title")


def check() -> None:
    """Raise ``NotEnacted`` where laws of somebody's own are: the stand-in's vectors must not come among theirs."""
    if LawVersion.objects.exclude(law_id__in=[law.law_id for law in OURS]).exists():
        raise NotEnacted(
            "This database has laws of its own. `make demo STATUTES=1` without DATABASE_URL makes another."
        )


def show(console: Console, visitor: ApiClient, aws: Aws, look: Callable[[], object], *, seconds: float) -> None:
    """Put three laws through the queue three times, list what came of it, and ask. Raises ``NotEnacted``.

    ``look`` is called again and again meanwhile.
    """
    known = {law.law_id for law in OURS if Law.objects.filter(pk=law.law_id, document_id__in=law.document_ids).exists()}
    for law in OURS:
        aws.put(law.key, law.file.read_bytes())
    if known:
        console.print("An earlier demo has left its laws here: they are asked for by force, for the bucket is new.\n")
    rounds = Rounds(console, aws, look, time.monotonic() + seconds)
    rounds.run("sent by force" if known else "sent", worked_on=OURS, forced=known)
    first = aws.stored()
    _list(console, first)
    rounds.run("sent again")
    rounds.run("sent again, by force", worked_on=OURS, forced={law.law_id for law in OURS})
    rounds.print()
    _compare(console, first, aws.stored())
    _empty(console, aws)
    _tell_laws(console)
    console.print("\nThe questions are answered by words: the stand-in's vectors know nothing of what they stand for.")
    for law in OURS:
        _ask(console, visitor, law)
    console.print("\nThe laws stay in this database: when they are shown again, no vector is bought again.")


def _list(console: Console, stored: list[Stored]) -> None:
    table = Table("key", "objects", "bytes", title="The bucket")
    sizes: dict[str, list[int]] = {}
    for found in stored:
        folder = found.key.rpartition("/")[0]
        shown = f"{folder}/<chunk_id>.json" if found.key.startswith("chunks/") else found.key
        sizes.setdefault(shown, []).append(found.size)
    for key, each in sizes.items():
        table.add_row(key, str(len(each)), f"{sum(each):,}")
    console.print(table)
    lacking = [law.law_id for law in OURS if keys.manifest(law.law_id) not in sizes]
    if lacking:
        raise NotEnacted(f"There is no manifest of {', '.join(lacking)}.")


def _compare(console: Console, first: list[Stored], last: list[Stored]) -> None:
    """What a law is made into depends on nothing but the law and its message."""
    if first != last:
        raise NotEnacted("What was made again is not what was made before.")
    console.print(f"The bucket's {len(last)} objects are, byte for byte, what they were after the first round.")


def _empty(console: Console, aws: Aws) -> None:
    received = Consumer.objects.latest("started_at").received
    waiting, dead = aws.waiting(), aws.dead_letters()
    console.print(
        f"The consumer has received {received} messages. Waiting in {QUEUE}: {waiting}; given up, in {DEAD}: {dead}.\n"
    )
    if waiting or dead:
        raise NotEnacted("Not every message has ended well.")


def _tell_laws(console: Console) -> None:
    table = Table(*LAWS, title="laws")
    for law in Law.objects.order_by("law_id"):
        table.add_row(law.law_id, law.version, law.status, law.language, str(law.chunk_count), law.title)
    console.print(table)


def _ask(console: Console, visitor: ApiClient, law: Sample) -> None:
    console.print(f"\n? {law.question}", style="bold", markup=False)
    found = visitor.laws(law.question, 1, mode=TEXT)
    if not found or found[0]["law_id"] != law.law_id or law.article not in found[0]["citation"]:
        raise NotEnacted(f"{law.article} of {law.law_id} was not found.")
    console.print(f"  {found[0]['citation']}", style="cyan", markup=False)
    console.print(f"    {strip_marks(found[0]['snippet'])} …", markup=False, highlight=False)
