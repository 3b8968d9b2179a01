"""What can be known of Bedrock before it is asked: who would sign the calls, and where they would go."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
from botocore.exceptions import BotoCoreError
from django.conf import settings
from django.core.checks import CheckMessage, Error


def is_used() -> bool:
    return "titan" in (settings.EMBEDDER, settings.STATUTES_EMBEDDER)


def check_bedrock_deployment() -> Iterator[CheckMessage]:
    """`check --deploy` looks for keys in AWS' own chain: the environment, a profile, the machine's role."""
    if not is_used():
        return
    if not has_aws_credentials():
        yield Error(
            "Titan embeds here, and there are no keys of AWS to ask Bedrock with.",
            hint="Give the machine a role that may bedrock:InvokeModel, or set AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY.",
            id="accessa.E113",
        )


def has_aws_credentials() -> bool:
    try:
        return boto3.Session().get_credentials() is not None
    except BotoCoreError:
        return False
