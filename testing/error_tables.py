"""Tables of error codes in the documentation, generated from their declarations between two HTML comments."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.conf import settings

from accessa.openapi.error_schemas import ANYWHERE, by_status
from accounts.errors import Context, ErrorCode, error_codes, find_error_code

GUIDES = (Path(settings.BASE_DIR, "docs/api.md"), Path(settings.BASE_DIR, "docs/operations/incidents.md"))
SECTION = re.compile(r"(<!-- error codes: (\w+) -->\n).*?(<!-- end of error codes -->)", re.DOTALL)


def insert_tables(guide: str, schema: Mapping[str, Any]) -> str:
    """Return a guide's text with its tables as they are declared today."""
    return SECTION.sub(
        lambda section: section[1] + "\n".join(render_table(section[2], schema)) + "\n" + section[3], guide
    )


def render_table(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if name == "api":
        yield from ("| status | codes |", "|---|---|")
        for status, codes in by_status([*schema_codes(schema), *ANYWHERE]).items():
            yield f"| {status} | {', '.join(f'`{code}`' for code in sorted(codes))} |"
        return
    yield from ("| code | what it means | what to do |", "|---|---|---|")
    for code in error_codes(Context(name)).values():
        if code.remedy:
            yield f"| `{code}` | {code.meaning} | {code.remedy} |"


def schema_codes(schema: Mapping[str, Any]) -> set[ErrorCode]:
    """Return the codes that the operations of an OpenAPI schema answer."""
    described = "".join(
        response["description"]
        for item in schema["paths"].values()
        for operation in item.values()
        for status, response in operation["responses"].items()
        if int(status) >= 400
    )
    return {code for name in re.findall(r"`([A-Z_0-9]+)`", described) if (code := find_error_code(name))}
