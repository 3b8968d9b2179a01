"""API behind pgbouncer in transaction mode: requests of many tenants share two server connections."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
import requests

from jobs import worker
from testing.api_server import ApiServer, running_api_server
from testing.cluster import database_params, database_url
from testing.personas import Person, plan_pdf, upload_request
from testing.pgbouncer import find_pgbouncer, running_pgbouncer
from testing.sizes import size

pytestmark = [
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not (find_pgbouncer() or os.environ.get("CI")), reason="pgbouncer is not installed."),
]
TENANTS = 4
PROBES = size(400, full=10_000)


@pytest.fixture(scope="module")
def api(django_db_setup: None) -> Iterator[ApiServer]:
    with (
        running_pgbouncer(database_params(), pool_size=2) as pooled,
        running_api_server(
            DATABASE_URL=database_url(pooled),
            DATABASE_TRANSACTION_POOLING="true",
            SEARCHES_PER_MINUTE=1_000_000,
            WEB_THREADS=8,
        ) as server,
    ):
        yield server


def call(api: ApiServer, person: Person, method: str, path: str, **kwargs: object) -> requests.Response:
    headers = {"Authorization": f"Bearer {person.token}"}
    return requests.request(method, api.url + path, headers=headers, timeout=30, **kwargs)  # type: ignore[arg-type]


def test_a_document_goes_its_way_through_a_transaction_pool(api: ApiServer, store: None) -> None:
    ana, content = Person("ana"), plan_pdf("hospital care")

    declared = call(api, ana, "POST", "/upload", json=upload_request(content)).json()
    put = requests.put(declared["signed_url"], content, headers={"Content-Type": "application/pdf"}, timeout=30)
    worker.drain()
    job = call(api, ana, "GET", f"/job/{declared['job_id']}").json()
    found = call(api, ana, "POST", "/search", json={"query": "hospital care"}).json()
    answer = call(api, ana, "POST", "/answer", json={"question": "Is hospital care covered?"})
    gone = call(api, ana, "DELETE", f"/documents/{declared['document_id']}")

    assert put.status_code == 200, put.text
    assert job["state"] == "done"
    assert found["passages"][0]["document_id"] == declared["document_id"]
    assert answer.status_code == 200, answer.text
    assert gone.status_code in {202, 204}, gone.text


def test_tenants_who_share_a_server_connection_never_see_each_other(api: ApiServer, store: None) -> None:
    people = [Person(f"tenant{number}") for number in range(TENANTS)]
    own = {person.id: person.ingest(plan_pdf("hospital care", "dental care")).document_id for person in people}

    def probe(number: int) -> tuple[UUID, set[str], int]:
        """Search or list as one tenant, or ask for another's document; return whose documents were shown."""
        person, other = people[number % TENANTS], people[(number + 1) % TENANTS]
        foreign = call(api, person, "GET", f"/documents/{own[other.id]}").status_code
        if number % 2:
            rows = call(api, person, "POST", "/search", json={"query": "hospital care"}).json()["passages"]
        else:
            rows = call(api, person, "GET", "/documents").json()["results"]
        return person.id, {row["document_id"] for row in rows}, foreign

    with ThreadPoolExecutor(8) as pool:
        probes = list(pool.map(probe, range(PROBES // 2)))

    assert {(user, frozenset(shown), status) for user, shown, status in probes} == {
        (user, frozenset({str(document)}), 404) for user, document in own.items()
    }
