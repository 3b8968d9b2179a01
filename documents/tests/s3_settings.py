"""Settings that put the files into an S3."""

import copy
from typing import Any

from testing.fakes.s3 import S3Server


def use_s3_storage(settings: Any, server: S3Server, **changed: Any) -> None:
    """Let both buckets be at ``server``."""
    defaults = {
        "S3_ENDPOINT_URL": server.url,
        "S3_ADDRESSING_STYLE": "path",
        "S3_ACCESS_KEY_ID": server.access_key,
        "S3_SECRET_ACCESS_KEY": server.secret_key,
        "S3_SESSION_TOKEN": "",
        "S3_PRESIGN": True,
    }
    for name, setting in (defaults | changed).items():
        setattr(settings, name, setting)
    stores = copy.deepcopy(settings.STORAGES)
    for name in ("raw", "parsed"):
        stores[name]["BACKEND"] = "documents.storage.s3.S3Bucket"
    settings.STORAGES = stores  # last: only this makes Django build its stores anew
