"""Command ``accessa``: upload, watch, search, answer, export, documents, webhooks."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from accessa_client.client import AccessaError, Client, Job
from accessa_client.webhooks import WebhookError, verify_webhook

EPILOG = """\
ACCESSA_URL and ACCESSA_TOKEN name the server and your token (or --url; a token never goes on the command line).
exit codes: 0 done; 1 refused or unreachable; 2 wrong usage; 3 a document has failed; 4 nothing was found;
5 the webhook is forged."""
REFUSED, FAILED, NOT_FOUND, FORGED = 1, 3, 4, 5
EVENTS = ("document.completed", "document.failed", "sync.failed")
BAR_CHARS = 24


class Output:
    """What a command prints: lines for people, one JSON document for each row with ``--json``."""

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        self._out, self.as_json = out, as_json

    def row(self, row: Any, *lines: str) -> None:
        for line in [json.dumps(row, ensure_ascii=False)] if self.as_json else lines:
            print(line, file=self._out)


class ProgressBar:
    """One line on a terminal that is drawn over itself; on anything else, a line for each change of a job."""

    def __init__(self, err: TextIO, names: dict[str, str]) -> None:
        self._err, self._names = err, names
        self._is_drawn = err.isatty()
        self._jobs: dict[str, Job] = {}

    def show(self, changed: Iterable[Job]) -> None:
        for job in changed:
            if not self._is_drawn and self._stage(self._jobs.get(job.job_id)) != self._stage(job):
                print(f"{self._name(job)}: {self._stage(job)}", file=self._err)
            self._jobs[job.job_id] = job
        if self._is_drawn:
            self._draw()

    def close(self) -> None:
        if self._is_drawn and self._jobs:
            print(file=self._err)

    def _draw(self) -> None:
        percent = sum(100.0 if job.has_ended else job.percent for job in self._jobs.values()) / len(self._names)
        done = sum(job.has_ended for job in self._jobs.values())
        bar = "#" * round(percent / 100 * BAR_CHARS)
        current = next((job for job in self._jobs.values() if not job.has_ended), None)
        text = f"{self._name(current)}: {self._stage(current)}" if current else ""
        line = f"[{bar:<{BAR_CHARS}}] {percent:3.0f} %  {done} of {len(self._names)}  {text}"
        print(f"\r\x1b[K{line[:100]}", end="", file=self._err, flush=True)

    def _name(self, job: Job) -> str:
        return printable(self._names.get(job.job_id, job.job_id))

    @staticmethod
    def _stage(job: Job | None) -> str:
        if job is None:
            return ""
        return job.error or ("searchable" if job.is_searchable else job.stage)


def printable(text: str) -> str:
    """Return a text of documents without what would steer a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    options = build_parser().parse_args(arguments)
    try:
        return run(options, sys.stdout, sys.stderr)
    except AccessaError as error:
        print(f"accessa: {error}", file=sys.stderr)
        return REFUSED
    except WebhookError as error:
        print(f"accessa: {error}", file=sys.stderr)
        return FORGED
    except KeyboardInterrupt:
        return 130


def run(
    options: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    connect: Callable[[str | None], Client] = Client,
) -> int:
    output = Output(out, as_json=options.json)
    if not options.needs_server:
        return webhooks_verify(options, output)
    with connect(options.url) as client:
        code: int = options.command(client, options, output, err)
    return code


def upload(client: Client, options: argparse.Namespace, output: Output, err: TextIO) -> int:
    """Upload each file; one that is refused does not keep the others from being uploaded."""
    headers = dict(each.split("=", 1) for each in options.header)
    names, code = dict[str, str](), 0
    for file in options.files:
        try:
            uploaded = client.upload(file, ocr=options.ocr, headers=headers)
        except AccessaError as error:
            print(f"accessa: {printable(os.path.basename(file))}: {error}", file=err)
            code = REFUSED
            continue
        names[uploaded.job_id] = uploaded.filename
        row = {"filename": uploaded.filename, "document_id": uploaded.document_id, "job_id": uploaded.job_id}
        output.row(row, f"{uploaded.job_id}  {printable(uploaded.filename)}")
    return max(code, follow(client, names, options, output, err)) if options.watch else code


def watch(client: Client, options: argparse.Namespace, output: Output, err: TextIO) -> int:
    ids = options.jobs or [job.job_id for job in client.jobs(active=True)]
    return follow(client, dict.fromkeys(ids, ""), options, output, err)


def follow(client: Client, names: dict[str, str], options: argparse.Namespace, output: Output, err: TextIO) -> int:
    """Show progress until all jobs have ended, then a row for each."""
    last = dict[str, Job]()
    names = {job_id: name or job_id for job_id, name in names.items()}
    bar = ProgressBar(err, names)
    try:
        for changed in client.watch(names, seconds=options.seconds):
            bar.show(changed)
            last |= {job.job_id: job for job in changed}
    finally:
        bar.close()
    for job in last.values():
        row = {"job_id": job.job_id, "document_id": job.document_id, "state": job.state, "error": job.error}
        name, end = printable(names[job.job_id]), job.error or "searchable"
        output.row(row, f"{job.document_id}  {end}  {name}")
    return FAILED if any(not job.is_searchable for job in last.values()) else 0


def search(client: Client, options: argparse.Namespace, output: Output, err: TextIO) -> int:
    found = client.search(options.query, k=options.k)
    if output.as_json:
        output.row(found)
    for passage in found["passages"]:
        head = f"{passage['filename']}, {pages(passage['pages'])}"
        output_lines(output, head, passage["snippet_text"])
    for law in found["laws"]:
        output_lines(output, law["citation"], law["snippet_text"])
    for record in found["records"]:
        output_lines(output, record.get("title") or record.get("provider", ""), record.get("snippet_text", ""))
    if any(found[kind] for kind in ("passages", "laws", "records")):
        return 0
    if not output.as_json:
        print("Not found in your documents.", file=err)
    return NOT_FOUND


def answer(client: Client, options: argparse.Namespace, output: Output, err: TextIO) -> int:
    answered = client.answer(options.question)
    if output.as_json:
        output.row(answered)
    for sentence in answered["sentences"]:
        cited = ", ".join(dict.fromkeys(f"{each['title']} p. {each['page']}" for each in sentence["citations"]))
        output_lines(output, sentence["text"], f"[{cited}]")
    if answered["answered"]:
        return 0
    if not output.as_json:
        print("Your documents do not say.", file=err)
    return NOT_FOUND


def output_lines(output: Output, head: str, text: str) -> None:
    if not output.as_json:
        output.row(None, printable(head), *(f"    {line}" for line in printable(text).splitlines()))


def pages(span: Sequence[int] | None) -> str:
    if not span:
        return "no page"
    return f"p. {span[0]}" if span[0] == span[-1] else f"p. {span[0]}-{span[-1]}"


def documents_list(client: Client, options: argparse.Namespace, output: Output, err: TextIO) -> int:
    for row in client.documents():
        output.row(row, f"{row['document_id']}  {row['processing_status']}  {printable(row['filename'])}")
    return 0


def documents_show(client: Client, options: argparse.Namespace, output: Output, err: TextIO) -> int:
    row = client.document(options.id)
    output.row(row, *(f"{name}: {printable(str(value))}" for name, value in row.items()))
    return 0


def documents_delete(client: Client, options: argparse.Namespace, output: Output, err: TextIO) -> int:
    for document_id in options.ids:
        client.delete_document(document_id)
        output.row({"document_id": document_id, "deleted": True}, f"{document_id}  deleted")
    return 0


def webhooks_list(client: Client, options: argparse.Namespace, output: Output, err: TextIO) -> int:
    for row in client.webhook_endpoints():
        state = "on" if row["enabled"] else f"off {row['disabled_code'] or ''}".strip()
        output.row(row, f"{row['id']}  {state}  {printable(row['url'])}  {', '.join(row['events'])}")
    return 0


def webhooks_create(client: Client, options: argparse.Namespace, output: Output, err: TextIO) -> int:
    row = client.create_webhook_endpoint(options.address, options.event)
    output.row(row, f"{row['id']}  {printable(row['url'])}", f"secret, shown this once: {row['secret']}")
    return 0


def webhooks_delete(client: Client, options: argparse.Namespace, output: Output, err: TextIO) -> int:
    client.delete_webhook_endpoint(options.id)
    output.row({"id": options.id, "deleted": True}, f"{options.id}  deleted")
    return 0


def export(client: Client, options: argparse.Namespace, output: Output, err: TextIO) -> int:
    """Download all that you have stored into a ZIP file; takes a token with the scope export."""
    size = client.export(options.file)
    output.row({"file": options.file, "bytes": size}, f"{printable(options.file)}  {size} bytes")
    return 0


def webhooks_verify(options: argparse.Namespace, output: Output) -> int:
    """Verify a webhook of which the body is at stdin; the secret is ACCESSA_WEBHOOK_SECRET."""
    headers = {f"webhook-{name}": getattr(options, name) for name in ("id", "timestamp", "signature")}
    secret = os.environ.get("ACCESSA_WEBHOOK_SECRET", "")
    event = verify_webhook(sys.stdin.buffer.read(), headers, secret, tolerance=options.tolerance)
    output.row(event, f"{event.get('type')}  {event.get('timestamp')}", json.dumps(event.get("data")))
    return 0


# --- arguments ------------------------------------------------------------------------------------------------------
def build_parser() -> argparse.ArgumentParser:
    lines = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("accessa", description=__doc__, epilog=EPILOG, formatter_class=lines)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    sub = add_command(commands, "upload", upload, "upload PDFs")
    sub.add_argument("files", nargs="+", metavar="FILE")
    sub.add_argument("--ocr", action="store_true", help="read scanned pages")
    sub.add_argument("--watch", action="store_true", help="wait until they can be searched")
    sub.add_argument("--header", action="append", default=[], type=header, metavar="NAME=TEXT", help="of the PUT")
    add_seconds(sub)
    sub = add_command(commands, "watch", watch, "wait for jobs, or for all that have not ended")
    sub.add_argument("jobs", nargs="*", metavar="JOB_ID")
    add_seconds(sub)
    sub = add_command(commands, "search", search, "find passages")
    sub.add_argument("query")
    sub.add_argument("-k", type=int, default=10, help="how many (10)")
    sub = add_command(commands, "answer", answer, "answer a question with sentences of your documents")
    sub.add_argument("question")

    sub = add_command(commands, "export", export, "download all that you have stored")
    sub.add_argument("file", metavar="FILE.zip")

    documents = commands.add_parser("documents", help="list, show, delete").add_subparsers(required=True)
    add_command(documents, "list", documents_list, "list your documents, the newest first")
    add_command(documents, "show", documents_show, "show one").add_argument("id")
    add_command(documents, "delete", documents_delete, "delete them").add_argument("ids", nargs="+", metavar="ID")

    webhooks = commands.add_parser("webhooks", help="list, create, delete, verify").add_subparsers(required=True)
    add_command(webhooks, "list", webhooks_list, "list your endpoints")
    sub = add_command(webhooks, "create", webhooks_create, "create an endpoint")
    sub.add_argument("address", metavar="URL")
    sub.add_argument("--event", action="append", choices=EVENTS, help="again for more; without, all")
    add_command(webhooks, "delete", webhooks_delete, "delete an endpoint").add_argument("id")
    sub = add_command(webhooks, "verify", webhooks_verify, "verify a received webhook, its body at stdin")
    for name in ("id", "timestamp", "signature"):
        sub.add_argument(f"--{name}", required=True, help=f"the header webhook-{name}")
    sub.add_argument("--tolerance", type=float, default=300.0, help="seconds (300)")
    return parser


def add_command(commands: Any, name: str, command: Callable[..., int], help: str) -> argparse.ArgumentParser:
    sub: argparse.ArgumentParser = commands.add_parser(name, help=help, description=command.__doc__ or help)
    sub.add_argument("--json", action="store_true", help="JSON, a line for each row")
    sub.add_argument("--url", help="instead of ACCESSA_URL")
    sub.set_defaults(command=command, needs_server=command is not webhooks_verify)
    return sub


def add_seconds(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--seconds", type=float, default=3600.0, help="the longest to wait (3600)")


def header(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError("NAME=TEXT is wanted")
    return text
