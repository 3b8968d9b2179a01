"""The optional AWS Lambda function that copies a law's vectors elsewhere, invoked with each new manifest."""

from django.conf import settings

from documents.deterministic_ids import canonical_json
from jobs.outcomes import Wait
from statutes.error_codes import LAMBDA_REFUSED
from statutes.models import LawVersion
from statutes.s3 import client as s3_client
from statutes.s3 import keys
from vendors import aws_client, calls
from vendors.rate_limit import Vendor

READ_SECONDS = 20.0
MISCONFIGURED_SECONDS = 60.0


def invoke_lambda(version: LawVersion, manifest_sha256: str) -> bool:
    """Invoke STATUTES_LAMBDA, if it is set, asynchronously; it may be invoked twice for one manifest.

    Call it outside of transactions. Raises as ``vendors.calls``, and ``Wait("LAMBDA_REFUSED")`` for a function
    that is missing or forbidden: an operator's mistake, not the law's.
    """
    function = settings.STATUTES_LAMBDA
    if not function:
        return False
    payload = {
        "bucket": s3_client.statutes_bucket(),
        "law_id": version.law_id,
        "version": version.version,
        "manifest_key": keys.manifest(version.law_id),
        "manifest_sha256": manifest_sha256,
    }
    parts = function.split(":")
    region = str(parts[3] if parts[0] == "arn" and len(parts) > 3 else settings.SQS_REGION)
    client = aws_client.create_client("lambda", region=region, endpoint=None, seconds=READ_SECONDS)
    try:
        with calls.guarded_call(Vendor("lambda", function, requests_per_minute=0), "invoke"):
            # https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html
            client.invoke(FunctionName=function, InvocationType="Event", Payload=canonical_json(payload).encode())
    except calls.VendorRefused as refused:
        raise Wait(MISCONFIGURED_SECONDS, LAMBDA_REFUSED) from refused
    return True
