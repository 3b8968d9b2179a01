"""Tools of the MCP server: shapes, tenancy, scopes, limits and invalid arguments, each call as the SDK makes it."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from structlog.testing import capture_logs

from accessa.mcp_server import items, tools
from accounts.api_tokens import TENANT_SCOPES
from accounts.authentication import Caller
from documents.models import Document
from embeddings.models import DocumentChunk
from integrations.models import SourceDocument
from statutes.models import Law
from testing.factories.records import create_client, create_record, create_source
from testing.factories.searchable_documents import create_searchable_document
from testing.factories.searchable_statutes import create_searchable_statute
from testing.personas import Person, Upload, plan_pdf

pytestmark = pytest.mark.django_db


TEXTS = (
    "The plan pays 80 percent of hospital care after the deductible of 500 dollars.",
    "The plan pays 40 percent of drugs from a pharmacy in your network.",
)


@pytest.fixture
def owned(ana: Person, ben: Person) -> UUID:
    """Return a document of Ana's that is searchable, made without a worker."""
    return create_searchable_document(ana.id, TEXTS)


@pytest.fixture
def records(ana: Person) -> list[str]:
    """Return the ids of a record and of a client of Ana's, beside one of a system that she has disconnected."""
    create_record(create_source(ana.id, "gmail", status="disconnected"), "mail:1", "hospital care by mail")
    record = create_record(create_source(ana.id), "company:1", "Northwind buys hospital care", title="Northwind")
    client = create_client(ana.id, "Tailspin", "Tailspin sells hospital care")
    return [f"record:{record.id}", f"record:{client.id}"]


@pytest.fixture
def ingested(ana: Person) -> Upload:
    uploaded = ana.ingest(plan_pdf("hospital care", "drugs"))
    assert uploaded.job.state == "done"
    return uploaded


def call(person: Person, name: str, *scopes: str, **arguments: Any) -> Any:
    caller = Caller(person.id, frozenset(scopes) or TENANT_SCOPES)
    return tools.call_tool(tools.TOOLS[name], tools.ToolCall(caller, arguments))


def output(person: Person, name: str, **arguments: Any) -> dict[str, Any]:
    """Return the structured content of a call: its text says the same, and it has the declared shape."""
    outcome = call(person, name, **arguments)
    assert not outcome.is_error, outcome.content
    assert json.loads(outcome.content[0].text) == outcome.structured_content
    Draft202012Validator(tools.TOOLS[name].declaration.output_schema or {}).validate(outcome.structured_content)
    content: dict[str, Any] = outcome.structured_content
    return content


def refusal(outcome: Any) -> tuple[str, str | None]:
    assert outcome.is_error, outcome
    body = json.loads(outcome.content[0].text)
    assert body["detail"]
    return body["code"], body.get("field")


# What the owner sees


def test_search_and_fetch_have_the_shapes_that_chatgpt_requires(owned: UUID, ana: Person) -> None:
    found = output(ana, "search", query="What does the plan pay of hospital care?")

    assert found.keys() == {"results"}
    assert all(result.keys() == {"id", "title", "url"} for result in found["results"])
    first = found["results"][0]
    read = output(ana, "fetch", id=first["id"])
    assert read.keys() == {"id", "title", "text", "url", "metadata"}
    assert (read["id"], read["title"], read["url"]) == (first["id"], first["title"], first["url"])
    assert read["text"] == TEXTS[0]
    assert f"/d/{owned}?passage=" in read["url"]
    assert read["metadata"]["document_id"] == f"document:{owned}"


def test_a_query_that_nothing_answers_has_no_results(owned: UUID, ana: Person) -> None:
    assert output(ana, "search", query="orbit of Neptune") == {"results": []}


def test_records_are_found_after_passages_and_read_whole(owned: UUID, records: list[str], ana: Person) -> None:
    SourceDocument.objects.filter(title="Northwind").update(url="https://a.example/1")

    found = output(ana, "search", query="hospital care")["results"]
    read = [output(ana, "fetch", id=each["id"]) for each in found]

    assert [each["id"].partition(":")[0] for each in found] == ["passage", "passage", "record", "record"]
    assert {each["id"] for each in found[2:]} == set(records)
    assert [(each["id"], each["title"], each["url"]) for each in read] == [
        (each["id"], each["title"], each["url"]) for each in found
    ]
    by_title = {each["title"]: each for each in read[2:]}
    assert by_title["Northwind"]["url"] == "https://a.example/1"
    assert by_title["Northwind"]["metadata"]["source"] == "hubspot"
    assert by_title["Tailspin"]["url"].endswith("/find")
    assert by_title["Tailspin"]["text"] == "Tailspin sells hospital care"


def test_statutes_are_found_last_read_and_answer_by_article(owned: UUID, ana: Person) -> None:
    create_searchable_statute(
        "LIVA", "Artículo 1. Las personas pagan.\nArtículo 2. La tasa del impuesto será del dieciséis."
    )

    found = output(ana, "search", query="hospital care, o la tasa")["results"]
    read = output(ana, "fetch", id=found[-1]["id"])
    answered = output(ana, "answer", question="¿Cuál es la tasa del impuesto?", sources=["statutes"])

    assert [each["id"].partition(":")[0] for each in found][-2:] == ["passage", "statute"]
    assert (read["id"], read["metadata"]["law_id"]) == (found[-1]["id"], "LIVA")
    assert "dieciséis" in read["text"]
    assert "{#" not in read["text"]
    (cited, *_) = answered["sentences"][0]["citations"]
    assert (cited["id"], cited["title"]) == (read["id"], "Ley de Ejemplo (2024-01), Artículo 2, p. 1")
    assert f"/statutes/{cited['chunk_id']}?span={cited['span'][0]}-" in cited["url"]
    Law.objects.update(document_id=None)
    assert refusal(call(ana, "fetch", id=read["id"])) == ("NOT_FOUND", None)


def test_a_long_document_is_fetched_in_parts(ingested: Upload, ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = items.read_resource(ana.id, f"accessa://documents/{ingested.document_id}")
    monkeypatch.setattr(items, "FETCH_CHARS", len(whole) // 2 + 1)

    parts, item = [], f"document:{ingested.document_id}"
    while item:
        part = output(ana, "fetch", id=item)
        parts.append(part["text"])
        item = part["metadata"]["next_id"]

    assert len(parts) == 2
    assert "".join(parts) == whole


def test_an_answer_has_citations_to_fetch_and_to_open(owned: UUID, ana: Person) -> None:
    answered = output(ana, "answer", question="What percent of drugs does the plan pay?", history=["hospital care?"])

    (cited, *_) = answered["sentences"][0]["citations"]
    assert answered["answered"]
    assert "drugs" in output(ana, "fetch", id=cited["id"])["text"]
    assert cited["url"].endswith(f"/d/{owned}?passage={cited['chunk_id']}#cited")


def test_documents_are_listed_with_their_status(ingested: Upload, ana: Person, settings: Any) -> None:
    listed = output(ana, "list_documents")

    (row,) = listed["documents"]
    assert (row["id"], row["title"], row["status"]) == (f"document:{ingested.document_id}", "plan.pdf", "done")
    assert listed["next_cursor"] is None
    status = output(ana, "document_status", id=row["id"])
    assert status.items() >= row.items()
    assert {step["state"] for step in status["steps"]} == {"done"}
    settings.POLLS_PER_MINUTE = 1
    assert refusal(call(ana, "document_status", id=row["id"])) == ("POLL_LIMIT_REACHED", None)


def test_a_failed_document_says_why(ana: Person) -> None:
    failed = ana.ingest(b"not a PDF")

    status = output(ana, "document_status", id=f"document:{failed.document_id}")

    assert (status["status"], status["error"]) == ("dead", "NOT_A_PDF")
    assert refusal(call(ana, "fetch", id=f"document:{failed.document_id}")) == ("NOT_READY", None)


# Whose


def foreign_calls(ana: Person, owned: UUID) -> list[tuple[str, dict[str, str]]]:
    found = [result["id"] for result in output(ana, "search", query="hospital care")["results"]]
    document = f"document:{owned}"
    return [*(("fetch", {"id": item}) for item in (*found, document)), ("document_status", {"id": document})]


def shown(ben: Person, calls: list[tuple[str, dict[str, str]]]) -> list[Any]:
    """Return what Ben sees of Ana's."""
    visible: list[Any] = [
        name for name, arguments in calls if refusal_code(call(ben, name, **arguments)) != "NOT_FOUND"
    ]
    visible += output(ben, "search", query="hospital care")["results"]
    visible += output(ben, "list_documents")["documents"]
    answered = output(ben, "answer", question="hospital care")
    return [*visible, *answered["sentences"], *answered["nearest"]]


def refusal_code(outcome: Any) -> str:
    return refusal(outcome)[0] if outcome.is_error else "OK"


def test_another_tenant_sees_nothing(owned: UUID, records: list[str], ana: Person, ben: Person) -> None:
    calls = foreign_calls(ana, owned)

    assert shown(ben, calls) == []
    for name, arguments in calls:
        unknown = {"id": f"{arguments['id'].partition(':')[0]}:{uuid4()}"}
        assert call(ben, name, **arguments) == call(ben, name, **unknown), name
    assert set(records) <= {arguments["id"] for _, arguments in calls}
    assert len(shown(ana, calls)) >= 8


def test_with_the_policies_alone_another_tenant_sees_nothing(
    owned: UUID, records: list[str], ana: Person, ben: Person, unscoped: None
) -> None:
    passage = output(ana, "search", query="hospital care")["results"][0]["id"]
    for item in (passage, f"document:{owned}", *records):
        assert refusal(call(ben, "fetch", id=item)) == ("NOT_FOUND", None)
    assert output(ben, "list_documents")["documents"] == []
    assert Document.objects.filter(pk=owned).exists()


def test_with_the_querysets_alone_another_tenant_sees_nothing(
    owned: UUID, records: list[str], ana: Person, ben: Person, without_policies: None
) -> None:
    assert shown(ben, foreign_calls(ana, owned)) == []


# Scopes, limits, arguments


@pytest.mark.parametrize("scope", ["read", "search", "write"])
def test_a_tool_takes_its_scope(scope: str, ana: Person) -> None:
    caller = Caller(ana.id, frozenset({scope}))
    allowed = {tool.name for tool in tools.tools_of(caller)}

    expected = {"search": {"search", "fetch", "answer"}, "read": {"list_documents", "document_status"}}
    assert allowed == expected.get(scope, set())
    for name in tools.TOOLS.keys() - allowed:
        assert refusal(call(ana, name, scope)) == ("INSUFFICIENT_SCOPE", None)


def test_calls_count_against_the_limits_of_the_api(owned: UUID, ana: Person, ben: Person, settings: Any) -> None:
    settings.SEARCHES_PER_MINUTE = settings.PAGE_VIEWS_PER_MINUTE = 1
    passage = {"id": f"passage:{DocumentChunk.objects.get(document=owned, chunk_ord=0).pk}"}

    assert ana.post("/search", {"query": "hospital"}).status_code == 200
    assert refusal(call(ana, "search", query="hospital"))[0] == "SEARCH_LIMIT_REACHED"
    limited = call(ana, "answer", question="hospital")
    assert json.loads(limited.content[0].text)["retry_after"] > 0
    codes = [refusal_code(call(ana, "fetch", **passage)) for _ in range(2)]
    assert codes == ["OK", "LOOK_LIMIT_REACHED"]
    output(ben, "search", query="hospital")


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("search", {}, ("INVALID_REQUEST", None)), ("search", {"query": 7}, ("INVALID_REQUEST", "query")),
        ("search", {"query": "a", "k": 5}, ("INVALID_REQUEST", None)),
        ("search", {"query": "a\0b"}, ("INVALID_REQUEST", "query")),
        ("search", {"query": "\ud800"}, ("INVALID_REQUEST", None)),
        ("search", {"query": " "}, ("EMPTY_QUERY", "query")),
        ("search", {"query": "x" * 8001}, ("QUERY_TOO_LONG", "query")),
        ("fetch", {"id": ""}, ("NOT_FOUND", None)), ("fetch", {"id": "passage:1"}, ("NOT_FOUND", None)),
        ("fetch", {"id": f"document:{UUID(int=7)}:x"}, ("NOT_FOUND", None)),
        ("fetch", {"id": "x" * 101}, ("INVALID_REQUEST", "id")), ("fetch", {"id": None}, ("INVALID_REQUEST", "id")),
        ("document_status", {"id": f"passage:{UUID(int=7)}"}, ("NOT_FOUND", None)),
        ("fetch", {"id": f"record:{UUID(int=7)}"}, ("NOT_FOUND", None)),
        ("fetch", {"id": f"statute:{UUID(int=7)}"}, ("NOT_FOUND", None)),
        ("answer", {"question": "a", "sources": ["gmail"]}, ("INVALID_REQUEST", "sources")),
        ("answer", {"question": "a", "sources": []}, ("INVALID_REQUEST", "sources")),
        ("answer", {"question": "the"}, ("NO_WORDS", "question")),
        ("answer", {"question": "a", "history": "b"}, ("INVALID_REQUEST", "history")),
        ("answer", {"question": "a", "history": ["b"] * 51}, ("INVALID_REQUEST", "history")),
        ("list_documents", {"cursor": 1}, ("INVALID_REQUEST", "cursor")),
    ],
)  # fmt: skip
def test_bad_arguments_have_stable_codes(
    name: str, arguments: dict[str, Any], expected: tuple[str, str | None], ana: Person
) -> None:
    assert refusal(call(ana, name, **arguments)) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["query", "id", "question", "history", "cursor"])
IDS = st.sampled_from(["passage", "document", "record", "statute", ""]).map(lambda kind: f"{kind}:{UUID(int=7)}:0")


@pytest.mark.slow
@settings(max_examples=150, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(tools.TOOLS)), arguments=st.dictionaries(NAMES, JSON | IDS, max_size=3))
def test_no_arguments_make_a_tool_fail_without_a_code(name: str, arguments: dict[str, Any], ana: Person) -> None:
    outcome = call(ana, name, **arguments)

    assert refusal_code(outcome) != "INTERNAL", (name, arguments)


def test_a_bug_is_answered_without_its_text(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(user_id: UUID, cursor: str) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(tools, "list_rows", broken)
    outcome = call(ana, "list_documents")

    assert refusal(outcome) == ("INTERNAL", None)
    assert "secret" not in str(outcome)


def test_the_log_has_tool_code_and_user_and_no_arguments(ana: Person) -> None:
    with capture_logs() as lines:
        call(ana, "search", query="my secret illness")
        call(ana, "fetch", id="nonsense")

    calls = [(line["tool"], line["code"], line["user"]) for line in lines if line["event"] == "Tool call."]
    assert calls == [("search", "OK", str(ana.id)), ("fetch", "NOT_FOUND", str(ana.id))]
    assert "illness" not in str(lines)
    assert "nonsense" not in str(lines)
