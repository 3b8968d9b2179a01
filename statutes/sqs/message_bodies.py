"""Bodies of SQS messages: which kind each is, its items, and the errors of its invalid parts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from jobs import safe_errors
from statutes import error_codes
from statutes.sqs.message_schema import Message, MessageRefused, parse_json, parse_statute_message
from statutes.sqs.s3_events import UploadNotification, parse_eventbridge_event, parse_s3_record

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")

MAX_RECORDS = 1_000  # per message; S3 itself puts one or a few into it
Item = Message | UploadNotification


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """The items of a body, and the errors of its invalid parts."""

    items: list[Item] = field(default_factory=list)
    refused: list[MessageRefused] = field(default_factory=list)


def parse_items(body: str) -> list[Item]:
    """Return the items of a body: none, when it is about other events. Raises ``MessageRefused``."""
    parsed = parse_body(body)
    if parsed.refused:
        raise parsed.refused[0]
    return parsed.items


def parse_body(body: str) -> ParsedBody:
    """Parse a body; an invalid S3 record does not affect the others. Raises nothing, so that a consumer lives on."""
    parsed = ParsedBody()
    with _collect_errors(parsed):
        content = parse_json(body)
        if content.get("Type") == "Notification" and "TopicArn" in content:
            inner = content.get("Message")
            if not isinstance(inner, str):
                raise MessageRefused(error_codes.MESSAGE_INVALID, "Message")
            content = parse_json(inner)
        if "document_id" in content:
            parsed.items.append(parse_statute_message(content))
        elif isinstance(content.get("Records"), list):
            if len(content["Records"]) > MAX_RECORDS:
                raise MessageRefused(error_codes.MESSAGE_INVALID, "Records")
            for record in content["Records"]:
                with _collect_errors(parsed):
                    parsed.items.extend(parse_s3_record(record))
        elif content.get("Event") == "s3:TestEvent":  # S3 sends one when a bucket's notifications are configured
            pass
        elif content.get("source") == "aws.s3":
            parsed.items.extend(parse_eventbridge_event(content))
        else:
            parsed.items.append(parse_statute_message(content))
    return parsed


@contextmanager
def _collect_errors(parsed: ParsedBody) -> Iterator[None]:
    try:
        yield
    except MessageRefused as refused:
        parsed.refused.append(refused)
    except Exception as error:
        log.error("A message cannot be read.", exception=safe_errors.safe_traceback(error), reported=True)
        parsed.refused.append(MessageRefused(error_codes.MESSAGE_UNREADABLE))
