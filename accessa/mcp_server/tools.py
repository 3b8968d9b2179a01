"""Tools of the MCP server: their declarations, and one call of a tool with its scope, limits, log line and errors."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from jsonschema import Draft202012Validator
from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations
from rest_framework.renderers import JSONRenderer

from accessa.error_responses import api_error
from accessa.mcp_server import items
from accounts.authentication import Caller, require_scope
from accounts.common_error_codes import INVALID_REQUEST, not_found
from accounts.errors import ApiError
from accounts.models import ApiToken
from accounts.rate_limit import PAGE_VIEWS, POLLS, SEARCHES, check_rate
from embeddings.search.query_parser import QueryEmbedding
from integrations.search import RECORDS
from jobs import telemetry
from portal.document_list import list_documents as list_rows
from portal.document_status import get_document
from portal.list_query import ListQuery
from search.answers import services as answers
from search.answers.openai import ClientGone
from search.answers.serializers import AnswerResponse
from search.services import STATUTES, UPLOADS
from search.services import search as search_sources
from statutes.search import search_available_statutes

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.mcp")

Arguments = dict[str, Any]
Scope = ApiToken.Scope
RESULTS = 10
MESSAGE_CHARS = 300  # of a sentence about an invalid argument, which quotes it
CITING_FIELDS = ("sentences", "contradiction")  # of an answer: each sentence has citations


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call with its valid arguments; ``is_connected`` tells whether the caller still waits."""

    caller: Caller
    arguments: Arguments
    is_connected: Callable[[], bool] = lambda: True

    @property
    def user_id(self) -> UUID:
        return self.caller.pk


Run = Callable[[ToolCall], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TenantTool:
    """A tool with its scope. ``run`` raises ``ApiError``."""

    declaration: Tool
    scope: ApiToken.Scope
    run: Run


def search(call: ToolCall) -> dict[str, Any]:
    check_rate(SEARCHES, call.user_id)
    query: dict[str, Any] = {
        "user_id": call.user_id,
        "query": call.arguments["query"],
        "k": RESULTS,
        "query_embedding": QueryEmbedding(call.user_id),
    }
    retrieved = search_sources(**query, sources=(UPLOADS, *RECORDS))
    results = [
        (
            f"passage:{passage.chunk_id}",
            items.passage_title(passage.filename, passage.pages, passage.headings),
            items.document_url(passage.document_id, passage.chunk_id),
        )
        for passage in retrieved.passages
    ]
    results += [
        (f"record:{record.record_id}", record.title or record.external_id or "", items.record_url(record.url))
        for record in retrieved.records
    ]
    results += [
        (f"statute:{law.chunk_id}", law.citation, items.statute_url(law.chunk_id, law.answer_span))
        for law in search_available_statutes(**query)
    ]
    return {"results": [{"id": item_id, "title": title, "url": url} for item_id, title, url in results]}


def fetch(call: ToolCall) -> dict[str, Any]:
    check_rate(PAGE_VIEWS, call.user_id)
    return items.fetch(call.user_id, call.arguments["id"])


def answer(call: ToolCall) -> dict[str, Any]:
    check_rate(SEARCHES, call.user_id)
    answered = answers.answer(
        user_id=call.user_id,
        question=call.arguments["question"],
        history=call.arguments.get("history", ()),
        sources=call.arguments.get("sources", (UPLOADS,)),
        is_connected=call.is_connected,
    )
    shown: dict[str, Any] = json.loads(JSONRenderer().render(AnswerResponse(answered).data))
    citations = [cited for field in CITING_FIELDS for sentence in shown[field] for cited in sentence["citations"]]
    for citation in (*citations, *shown["nearest"]):
        chunk_id = citation["chunk_id"]
        if citation["document_id"]:
            cited = {"id": f"passage:{chunk_id}", "url": items.document_url(citation["document_id"], chunk_id)}
        else:
            cited = {"id": f"statute:{chunk_id}", "url": items.statute_url(chunk_id, citation["span"])}
        citation |= cited
    return shown


def list_documents(call: ToolCall) -> dict[str, Any]:
    page = list_rows(call.user_id, ListQuery(cursor=call.arguments.get("cursor", "")))
    return {"documents": [items.summarize(row.status) for row in page.rows], "next_cursor": page.older}


def document_status(call: ToolCall) -> dict[str, Any]:
    item = items.ID.fullmatch(call.arguments["id"])
    if item is None or item["kind"] != "document":
        raise not_found()
    row = get_document(call.user_id, UUID(item["uuid"]))
    if row.job is not None:
        check_rate(POLLS, row.job.pk)
    steps = [{"name": step.name, "state": step.state} for step in row.steps]
    return items.summarize(row) | {"steps": steps}


def _text(description: str, **constraints: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, "pattern": r"^[^\u0000]*$", **constraints}


def _tool(
    run: Run,
    scope: ApiToken.Scope,
    title: str,
    description: str,
    properties: dict[str, Any],
    *,
    optional: tuple[str, ...] = (),
    output: dict[str, Any] | None = None,
) -> TenantTool:
    schema = {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
    declaration = Tool(
        name=run.__name__,
        title=title,
        description=description,
        input_schema=schema,
        output_schema=output,
        annotations=ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False),
    )
    return TenantTool(declaration, scope, run)


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


STRING: dict[str, Any] = {"type": "string"}
ITEM_ID = _text("An id of search, of list_documents, or of metadata.next_id.", maxLength=100)
DOCUMENT_ID = _text("A document's id: of list_documents, or of metadata.document_id.", maxLength=100)
# The shapes of search and fetch are those that ChatGPT's connectors and deep research require:
# https://platform.openai.com/docs/mcp
TOOLS = {
    tool.declaration.name: tool
    for tool in (
        _tool(
            search, Scope.SEARCH, "Search documents, records and statutes",
            "Search the user's insurance documents, records of connected systems, and statutes. Returns passages of"
            " documents, then records, then passages of statutes, of each the best first, with an id for fetch; no"
            " documents if none answers the query.",
            {"query": _text("A question, or words.")},
            output=_object(results={"type": "array", "items": _object(id=STRING, title=STRING, url=STRING)}),
        ),
        _tool(
            fetch, Scope.SEARCH, "Read a passage, document or record",
            "Return the text of a passage, document, record or statute, with the address to cite. A long one comes in"
            f" parts of {items.FETCH_CHARS:,} characters: metadata.next_id is the id of the next.",
            {"id": ITEM_ID},
            output=_object(id=STRING, title=STRING, text=STRING, url=STRING, metadata={"type": "object"}),
        ),
        _tool(
            answer, Scope.SEARCH, "Answer a question",
            "Answer a question in sentences and table rows of the user's documents or of statutes, each with its"
            " citation; documents that contradict each other are shown side by side. `answered` is false if none"
            " says it.",
            {
                "question": _text("A question, or a follow-up."),
                "history": {"type": "array", "items": _text("An earlier question."), "maxItems": answers.MAX_TURNS},
                "sources": {
                    "type": "array",
                    "items": {"enum": [UPLOADS, STATUTES]},
                    "minItems": 1,
                    "uniqueItems": True,
                    "description": "What answers: the user's documents (the default), or statutes, by their articles.",
                },
            },
            optional=("history", "sources"),
        ),
        _tool(
            list_documents, Scope.READ, "List documents",
            "List the user's documents, the newest first, with their progress.",
            {"cursor": _text("next_cursor of the previous page.", maxLength=100)},
            optional=("cursor",),
        ),
        _tool(
            document_status, Scope.READ, "Show a document's progress",
            "Show how far the processing of a document has come, and why it waits or failed.",
            {"id": DOCUMENT_ID},
        ),
    )
}  # fmt: skip


def tools_of(caller: Caller) -> list[Tool]:
    return [tool.declaration for tool in TOOLS.values() if tool.scope in caller.scopes]


def call_tool(tool: TenantTool, call: ToolCall) -> CallToolResult:
    """Run a tool for a caller: structured content and the same as JSON text, or an error with its stable code."""
    began, code = time.monotonic(), "OK"
    with telemetry.span("tool", tool=tool.declaration.name):
        try:
            require_scope(call.caller, tool.scope)
            validate_arguments(tool.declaration, call.arguments)
            output = tool.run(call)
            outcome = CallToolResult(content=[_json_text(output)], structured_content=output)
        except ClientGone:
            code, outcome = "CLIENT_GONE", CallToolResult(content=[], is_error=True)  # which nobody reads
        except Exception as error:
            refused = api_error(error)
            code = str(refused.code)
            retry = {"retry_after": refused.retry_after} if refused.retry_after else {}
            outcome = CallToolResult(content=[_json_text(refused.body | retry)], is_error=True)
    milliseconds = round((time.monotonic() - began) * 1000, 1)
    log.info("Tool call.", tool=tool.declaration.name, code=code, duration_ms=milliseconds, user=str(call.user_id))
    return outcome


def validate_arguments(tool: Tool, arguments: Arguments) -> None:
    """Raise ``ApiError("INVALID_REQUEST")`` with the first invalid argument."""
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair
        raise ApiError(INVALID_REQUEST, "The arguments are not valid text.") from None
    for error in Draft202012Validator(tool.input_schema).iter_errors(arguments):
        field = str(error.path[0]) if error.path else None
        raise ApiError(INVALID_REQUEST, error.message[:MESSAGE_CHARS], field=field)


def _json_text(body: dict[str, Any]) -> TextContent:
    return TextContent(type="text", text=json.dumps(body, ensure_ascii=False))
