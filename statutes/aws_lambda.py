"""An optional Lambda function that persists a law's vectors elsewhere: told of the manifest once it stands."""

from __future__ import annotations

from django.conf import settings

from documents.ids import canonical_json
from jobs.outcomes import Wait
from statutes.error_codes import LAMBDA_REFUSED
from statutes.models import LawVersion
from statutes.s3 import client as objects
from statutes.s3 import keys
from vendors import aws, guard
from vendors.vendor import Vendor

READ_SECONDS = 20.0
MISCONFIGURED_SECONDS = 60.0


def invoke_lambda(version: LawVersion, manifest_sha256: str) -> bool:
    """Invoke STATUTES_LAMBDA, if there is one, without waiting for what it does; it may be told twice.

    Call it in no transaction. Raises what the gate raises, and ``Wait("LAMBDA_REFUSED")`` for a function that is
    not there or not ours: an operator's mistake, no law's.
    """
    if not settings.STATUTES_LAMBDA:
        return False
    told = {
        "bucket": objects.statutes_bucket(),
        "law_id": version.law_id,
        "version": version.version,
        "manifest_key": keys.manifest(version.law_id),
        "manifest_sha256": manifest_sha256,
    }
    client = aws.create_client("lambda", region=_region(), endpoint=None, seconds=READ_SECONDS)
    try:
        with guard.guarded_call(Vendor("lambda", settings.STATUTES_LAMBDA, requests_per_minute=0), "invoke"):
            # https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html
            client.invoke(
                FunctionName=settings.STATUTES_LAMBDA, InvocationType="Event", Payload=canonical_json(told).encode()
            )
    except guard.VendorRefused as refused:
        raise Wait(MISCONFIGURED_SECONDS, LAMBDA_REFUSED) from refused
    return True


def _region() -> str:
    """Return the region that a function's ARN names, or else the queue's."""
    parts = settings.STATUTES_LAMBDA.split(":")
    return str(parts[3] if parts[0] == "arn" and len(parts) > 3 else settings.SQS_REGION)
