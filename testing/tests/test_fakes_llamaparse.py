"""Tests of the fake LlamaParse with the vendor's SDK."""

from collections.abc import Iterator
from typing import Any

import httpx
import llama_cloud
import pytest

from testing.fakes.faults import FAULTS, faults_for
from testing.fakes.llamaparse import LlamaParseServer
from testing.tests.vendor_clients import SHORT, cloud, submit, upload, wait_for_job


@pytest.fixture
def parser() -> Iterator[LlamaParseServer]:
    with LlamaParseServer(backoff_factor=0.02) as server:
        yield server


def test_llamaparse_reads_an_uploaded_file_and_bills_its_pages(parser: LlamaParseServer) -> None:
    with cloud(parser) as client:
        job_id = submit(client, upload(client))
        job = wait_for_job(client, job_id)

    assert job.job.status == "COMPLETED"
    assert job.job.usage.credits == 9
    assert job.job.user_metadata["parse_id"] == "p1"
    assert [page.markdown for page in job.markdown.pages] == ["Deductible $500", "Copay $20", "Referral"]
    assert [page.page_number for page in job.metadata.pages] == [1, 2, 3]
    assert parser.ledger.summary(items=True)["items"] == {"p1": 1}
    assert parser.ledger.totals == {"pages": 3, "credits": 9}


def test_llamaparse_shows_results_only_to_those_who_ask_for_them(parser: LlamaParseServer) -> None:
    with cloud(parser) as client:
        job_id = submit(client, upload(client))
        wait_for_job(client, job_id)

        assert client.parsing.get(job_id).markdown is None


def test_llamaparse_finds_files_by_the_callers_id_and_deletes_them(parser: LlamaParseServer) -> None:
    with cloud(parser) as client:
        file_id = upload(client, bytes(range(256)) * 100 + b"\r\n--x\r\n", external="mine")

        assert [file.id for file in client.files.list(external_file_id="mine")] == [file_id]
        assert list(client.files.list(external_file_id="other")) == []
        assert parser.files[file_id].content == bytes(range(256)) * 100 + b"\r\n--x\r\n"

        client.files.delete(file_id)
        with pytest.raises(llama_cloud.NotFoundError):
            submit(client, file_id)


def test_llamaparse_lists_jobs_newest_first_by_pages_and_filters(parser: LlamaParseServer) -> None:
    with cloud(parser) as client:
        file_id = upload(client)
        ids = [submit(client, file_id, f"p{number}") for number in range(5)]
        for job_id in ids:
            wait_for_job(client, job_id)

        listed = list(client.parsing.list(page_size=2))
        later = parser.jobs[ids[3]].created_at

        assert [job.id for job in listed] == ids[::-1]
        assert (listed[0].user_metadata or {})["parse_id"] == "p4"
        assert {job.id for job in client.parsing.list(job_ids=ids[:2])} == set(ids[:2])
        assert [job.id for job in client.parsing.list(created_at_on_or_after=later)] == [ids[4], ids[3]]
        assert [job.id for job in client.parsing.list(created_at_on_or_before=later)] == ids[3::-1]
        assert list(client.parsing.list(status="FAILED")) == []


def test_llamaparse_cancels_a_running_job_and_deletes_a_finished_one(parser: LlamaParseServer) -> None:
    parser.delay = 60
    with cloud(parser) as client:
        job_id = submit(client, upload(client))
        with pytest.raises(llama_cloud.ConflictError):
            client.parsing.delete(job_id)

        assert client.parsing.cancel(job_id).status == "CANCELLED"
        assert client.parsing.delete(job_id).id == job_id
        with pytest.raises(llama_cloud.NotFoundError):
            client.parsing.get(job_id)


def test_llamaparse_shows_pages_that_failed_inside_a_completed_job(parser: LlamaParseServer) -> None:
    parser.failed_pages = [2]
    with cloud(parser) as client:
        job = wait_for_job(client, submit(client, upload(client)))

    assert job.job.status == "COMPLETED"
    assert [page.success for page in job.markdown.pages] == [True, False, True]
    assert job.markdown.pages[1].error


def test_llamaparse_fails_a_job_whose_file_is_no_pdf(parser: LlamaParseServer) -> None:
    with cloud(parser) as client:
        job = wait_for_job(client, submit(client, upload(client, b"not a PDF")))

    assert (job.job.status, bool(job.job.error_message)) == ("FAILED", True)


def test_llamaparse_sells_the_same_bytes_and_options_once_with_its_cache_on(parser: LlamaParseServer) -> None:
    parser.cache = True
    with cloud(parser) as client:
        submit(client, upload(client), "p1")
        submit(client, upload(client), "p2")
        submit(client, upload(client), "p3", tier="agentic")
        submit(client, upload(client), "p4", disable_cache=True)

    assert set(parser.ledger.counts) == {"p1", "p3", "p4"}


def test_llamaparse_reads_only_the_pages_asked_for(parser: LlamaParseServer) -> None:
    with cloud(parser) as client:
        job = wait_for_job(client, submit(client, upload(client), page_ranges={"target_pages": "1,3"}))

    assert [page.page_number for page in job.markdown.pages] == [1, 3]
    assert parser.ledger.totals["pages"] == 2


def test_llamaparse_knows_its_key(parser: LlamaParseServer) -> None:
    with cloud(parser) as client, pytest.raises(llama_cloud.AuthenticationError):
        client.with_options(api_key="llx-wrong").parsing.get("any")


@pytest.mark.parametrize("name", faults_for("llamaparse"))
def test_the_llamaparse_sdk_sees_each_fault_of_the_submit(parser: LlamaParseServer, name: str) -> None:
    with cloud(parser) as client:
        file_id = upload(client)
        parser.inject_fault("POST /api/v2/parse", name)
        try:
            seen: Any = client.parsing.create(file_id=file_id, tier="fast", version="latest", timeout=SHORT)
        except (llama_cloud.LlamaCloudError, httpx.HTTPError, ValueError, TypeError) as error:
            seen = error
        if name == "refused":
            parser.clear_faults()

        assert not isinstance(getattr(seen, "id", None), str)
        assert bool(parser.ledger.sold) == FAULTS[name].sold
        assert submit(client, file_id), "it lasted longer than one call"


@pytest.mark.parametrize("name", faults_for("llamaparse-result"))
def test_the_llamaparse_sdk_sees_each_corrupted_result(parser: LlamaParseServer, name: str) -> None:
    with cloud(parser) as client:
        job_id = submit(client, upload(client))
        right = wait_for_job(client, job_id)
        parser.inject_fault("GET /api/v2/parse/*", name)
        try:
            seen: Any = client.parsing.get(job_id, expand=["markdown", "metadata", "text"], timeout=SHORT)
        except (llama_cloud.LlamaCloudError, httpx.HTTPError, ValueError, TypeError) as error:
            seen = error
        if name == "refused":
            parser.clear_faults()

        assert seen != right
        assert wait_for_job(client, job_id) == right, "it lasted longer than one call"
