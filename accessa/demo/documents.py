"""Demo scenario: PDFs from upload to search, or with fake vendors to the bill."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from django.conf import settings

from accessa.demo import fakes
from accessa.demo.client import ApiClientError
from accessa.demo.scenario import Demo, Scenario, use_variables
from accessa.server.programs import Address
from documents.cli_progress import JobStatus, follow_jobs

SAMPLES = settings.BASE_DIR / "samples"
QUESTIONS = ("What does the plan cover?", "What do I pay for a visit?", "How do I appeal a decision?")


class DocumentScenario(Scenario):
    def __init__(self, files: list[Path], questions: list[str]) -> None:
        self.files = files
        self.questions = questions

    def run(self, demo: Demo) -> None:
        self.upload_files(demo)
        for question in self.questions:
            demo.print_question(question)
            for passage in demo.client.search(question, 2)["passages"]:
                first, last = passage["pages"]
                pages = f"page {first}" if first == last else f"pages {first}-{last}"
                heading = " > ".join(passage["headings"]) or "no heading"
                demo.print_hit(f"{passage['filename']}, {pages}, {heading}", passage["text"])

    def upload_files(self, demo: Demo) -> None:
        """Upload the files and draw their jobs until each has ended."""
        names: dict[UUID, str] = {}
        for file in self.files:
            try:
                names[demo.client.upload(file)] = file.name
            except ApiClientError as error:
                demo.console.print(f"  {file.name}: {error}", style="red", markup=False)

        def poll() -> list[JobStatus]:
            demo.tick()
            return list(demo.client.jobs())

        seconds = max(0.0, demo.deadline - time.monotonic())
        jobs = follow_jobs(names, poll, demo.console, seconds=seconds) if names else {}
        failed = len(self.files) - sum(job.state == "done" for job in jobs.values())
        if failed:
            demo.failures.append(f"{failed} of {len(self.files)} documents did not end well.")


class VendorScenario(DocumentScenario):
    """Documents parsed, embedded and stored by fake vendors, which count their sales."""

    def __init__(self, files: list[Path], address: Address) -> None:
        super().__init__(files, questions=[])
        self.address = address
        self.fakes: fakes.Fakes = {}

    @contextmanager
    def environment(self) -> Iterator[None]:
        with (
            fakes.run_fakes("llamaparse", "openai", "s3", options=("--s3-strict",)) as self.fakes,
            use_variables(fakes.vendor_variables(self.fakes, self.address)),
        ):
            yield

    def run(self, demo: Demo) -> None:
        super().run(demo)
        demo.console.print("The bill:", *demo.client.bill(), sep="\n  ", markup=False, highlight=False)
        parses, vectors = fakes.fetch_ledger(self.fakes["llamaparse"]), fakes.fetch_ledger(self.fakes["openai"])
        sold, calls = parses["ledger"], parses["callbacks"]
        demo.console.print(f"LlamaParse sold {sold['sold']} parses, {sold['repeated']} of them twice;")
        demo.console.print(f"  {calls['accepted']} of its {calls['attempts']} signed callbacks were accepted.")
        sold = vectors["ledger"]
        tokens = sold.get("tokens", 0)  # none were sold
        demo.console.print(f"OpenAI sold {sold['sold']} vectors ({tokens} tokens), {sold['repeated']} of them twice.")
        demo.console.print("No questions: the fake vectors know nothing of the texts.")
        demo.client.delete_documents()  # the fake store is about to end
