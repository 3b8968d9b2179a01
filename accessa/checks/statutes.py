"""System checks of the statute worker's settings: SQS queues, the statutes bucket, Titan on Bedrock."""

from importlib import import_module

from django.conf import settings

from accessa.checks.rules import Rule, configuration_error, is_plain_http, is_url
from embeddings.embedders import registry
from statutes.sqs import SETTING_BOUNDS

QUEUES = ("SQS_QUEUE_URL", "SQS_PRIORITY_QUEUE_URL")
URLS = (*QUEUES, "SQS_ENDPOINT_URL", "STATUTES_S3_ENDPOINT_URL", "TITAN_ENDPOINT_URL")
SHORTEST_VISIBILITY = 30  # a renewal each 10 s, of which one may fail


def uses_titan() -> bool:
    return "titan" in (settings.EMBEDDER, settings.STATUTES_EMBEDDER)


def has_aws_credentials() -> bool:
    """Search AWS' own chain: the environment, a profile, the machine's role."""
    session = import_module("boto3.session")  # only with --deploy: every process loads this module
    try:
        return session.Session().get_credentials() is not None
    except import_module("botocore.exceptions").BotoCoreError:
        return False


# fmt: off
STATUTE_RULES = (
    Rule("accessa.E251", lambda s: [name for name in URLS if getattr(s, name) and not is_url(getattr(s, name))],
         "{0} is no address.", "Set it to scheme://host and what follows."),
    Rule("accessa.E252", lambda s: [name for name in QUEUES if getattr(s, name).endswith(".fifo")],
         "{0} is a FIFO queue: a failed message would block all behind it.",
         "Make a standard queue; version numbers keep the order."),
    Rule("accessa.E253", lambda s: bool(s.SQS_QUEUE_URL) and not s.STATUTES_BUCKET,
         "SQS_QUEUE_URL is set without a bucket for the artifacts.", "Set STATUTES_BUCKET."),
    Rule("accessa.E254", lambda s: bool(s.SQS_PRIORITY_QUEUE_URL) and s.SQS_PRIORITY_QUEUE_URL == s.SQS_QUEUE_URL,
         "SQS_PRIORITY_QUEUE_URL is SQS_QUEUE_URL.", "Unset SQS_PRIORITY_QUEUE_URL, or set it to another queue."),
    Rule("accessa.E254", lambda s: bool(s.SQS_PRIORITY_QUEUE_URL) and not s.SQS_QUEUE_URL,
         "There is a priority queue, and no queue for other messages.", "Set SQS_QUEUE_URL too."),
    Rule("accessa.E255", lambda s: [(name, *bounds) for name, bounds in SETTING_BOUNDS.items()
                                    if not bounds[0] <= getattr(s, name) <= bounds[1]],
         "{0} is not what SQS takes.", "Set {0} to {1} to {2}."),
    Rule("accessa.E256", lambda s: [(s.STATUTES_EMBEDDER, ", ".join(sorted(registry.EMBEDDERS)))]
         if s.STATUTES_EMBEDDER not in ("", *registry.EMBEDDERS) and "." not in s.STATUTES_EMBEDDER else (),
         "There is no embedder {0!r}.", "Use one of {1}, or the dotted path of a class; or unset it."),
    Rule("accessa.W257", lambda s: bool(s.SQS_QUEUE_URL) and s.SQS_VISIBILITY_SECONDS < SHORTEST_VISIBILITY,
         "A short network failure makes messages visible to other consumers while they are worked on.",
         f"Raise SQS_VISIBILITY_SECONDS to {SHORTEST_VISIBILITY} or more."),
    Rule("accessa.E258", lambda s: s.STORAGE == "s3" and s.STATUTES_S3_ENDPOINT_URL == s.S3_ENDPOINT_URL
         and s.STATUTES_BUCKET in (s.S3_RAW_BUCKET, s.S3_PARSED_BUCKET),
         "Statutes and tenants' files have one bucket.", "Give STATUTES_BUCKET a bucket of its own."),
    # Whatever the endpoints: one store has many names, and one wrong word would publish tenants' files.
    Rule("accessa.E259", lambda s: s.STORAGE == "s3"
         and not {s.S3_RAW_BUCKET, s.S3_PARSED_BUCKET}.isdisjoint(s.STATUTES_RAW_BUCKETS),
         "A message may make a statute of a tenant's file.",
         "Take S3_RAW_BUCKET and S3_PARSED_BUCKET out of STATUTES_RAW_BUCKETS."),
    Rule("accessa.E250", lambda s: configuration_error(lambda: registry.get_embedder("titan").model)
         if uses_titan() else (),
         "{0}", "Correct TITAN_MODEL."),
)
STATUTE_DEPLOYMENT_RULES = (
    Rule("accessa.E113", lambda s: uses_titan() and not has_aws_credentials(),
         "Titan embeds here, and there are no AWS keys for Bedrock.",
         "Give the machine a role that may bedrock:InvokeModel, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."),
    Rule("accessa.E114", lambda s: [name for name in URLS if is_plain_http(getattr(s, name))]
         if s.SQS_QUEUE_URL or s.STATUTES_BUCKET else (),
         "{0} is not https: its traffic can be read and changed on the way.", "Set {0} to https, or unset it."),
    Rule("accessa.E115", lambda s: bool(s.SQS_QUEUE_URL) and not has_aws_credentials(),
         "There are no AWS keys for SQS.",
         "Give the machine a role that may use the queue, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."),
)
# fmt: on
