"""docs/operations/statutes.md agrees with the code."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from accessa import settings_statutes
from statutes.consumer.status_reporter import FINALIZE, SUB_STATES
from statutes.models import Consumer, Law
from statutes.sqs import message_schema

ROOT = Path(settings.BASE_DIR)
GUIDE = (ROOT / "docs/operations/statutes.md").read_text(encoding="utf-8")
SETTINGS = (ROOT / "docs/operations/settings.md").read_text(encoding="utf-8")
# Where AWS is called, how a call is spelled there, and which right each operation takes.
CALLS = {
    "statutes/s3/client.py": r'_call\("(\w+)"',
    "statutes/sqs/client.py": r"_client\([^)]*\)\.(\w+)\(",
    "statutes/stages.py": r"\bfunction_client\.(\w+)\(",
    "embeddings/embedders/titan.py": r"\bclient\.(\w+)\(\s",
}
RIGHTS = {
    "head_object": {"s3:GetObject"},
    "get_object": {"s3:GetObject"},
    "get_object_tagging": {"s3:GetObjectTagging"},
    "head_bucket": {"s3:ListBucket"},
    "list_objects_v2": {"s3:ListBucket"},
    "put_object": {"s3:PutObject"},
    "copy_object": {"s3:GetObject", "s3:PutObject"},
    "delete_object": {"s3:DeleteObject"},
    "receive_message": {"sqs:ReceiveMessage"},
    "delete_message": {"sqs:DeleteMessage"},
    "change_message_visibility": {"sqs:ChangeMessageVisibility"},
    "get_queue_attributes": {"sqs:GetQueueAttributes"},
    "send_message": {"sqs:SendMessage"},
    "invoke": {"lambda:InvokeFunction"},
    "invoke_model": {"bedrock:InvokeModel"},
}


def blocks() -> list[Any]:
    return [json.loads(block) for block in re.findall(r"```json\n(.*?)```", GUIDE, re.S)]


def actions(policy: Any) -> set[str]:
    granted = [statement["Action"] for statement in policy["Statement"]]
    return {action for each in granted for action in ([each] if isinstance(each, str) else each)}


def test_the_documented_role_allows_exactly_the_calls_of_the_code() -> None:
    role = next(block for block in blocks() if len(block.get("Statement", ())) > 1)

    called = {call for path, spelled in CALLS.items() for call in re.findall(spelled, (ROOT / path).read_text())}

    assert actions(role) == set().union(*(RIGHTS[operation] for operation in called))
    assert called == set(RIGHTS)


@pytest.mark.parametrize("path", CALLS)
def test_each_module_that_calls_aws_is_scanned(path: str) -> None:
    assert re.findall(CALLS[path], (ROOT / path).read_text())


def test_no_other_module_calls_aws() -> None:
    calling = {
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "statutes").rglob("*.py"))
        if "tests" not in path.parts and re.search(r"boto3|aws_client\.create_client\(", path.read_text())
    }

    assert calling == {path for path in CALLS if path.startswith("statutes/")}


def test_the_documented_message_is_valid() -> None:
    shown = next(block for block in blocks() if "s3_raw_key" in block)

    message = message_schema.parse_statute_message(message_schema.parse_json(json.dumps(shown)))

    assert message.law_id == "ISR_2024"
    assert not message.force_reprocess


@pytest.mark.parametrize("name", [name for name in settings_statutes.__all__ if not name.endswith("_OF")])
def test_each_setting_is_documented(name: str) -> None:
    assert f"`{name}`" in SETTINGS


def test_each_state_of_a_consumer_is_documented() -> None:
    words = set(re.findall(r"`([a-z_]+)`", GUIDE))

    assert {*Consumer.State.values, *SUB_STATES.values(), FINALIZE} - words == set()
    assert {Law.Status.PARTIAL_FAILED.value} <= words
