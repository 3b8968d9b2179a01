"""Encryption of secrets at rest under INTEGRATIONS_VAULT_KEYS: the first key encrypts, all of them decrypt."""

import base64
from functools import lru_cache
from typing import Any, NamedTuple

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet

SHORTEST_KEY = 32  # characters of a key that is no Fernet key: it is not stretched, so it must be random itself


def vault() -> MultiFernet:
    return MultiFernet(_keys(tuple(settings.INTEGRATIONS_VAULT_KEYS)))


def is_under_newest_key(secret: bytes) -> bool:
    return _opens(_keys(tuple(settings.INTEGRATIONS_VAULT_KEYS))[0], secret)


class RotationCounts(NamedTuple):
    """Secrets by the key that they were under before: the newest, an older one, none."""

    newest: int
    older: int
    unknown: int


def rotate_column(rows: QuerySet[Any], column: str, *, write: bool) -> RotationCounts:
    """Check the secrets in a column; with ``write``, encrypt those under an older key under the newest."""
    newest = older = unknown = 0
    secrets = rows.exclude(**{column: None}).order_by("pk").values_list("pk", column)
    for pk, stored in secrets.iterator():
        secret = bytes(stored)
        if is_under_newest_key(secret):
            newest += 1
        elif _opens(vault(), secret):
            older += 1
            if write:  # unless it was replaced meanwhile
                rows.filter(pk=pk, **{column: secret}).update(**{column: vault().rotate(secret)})
        else:
            unknown += 1
    return RotationCounts(newest, older, unknown)


def _opens(key: Fernet | MultiFernet, secret: bytes) -> bool:
    try:
        key.decrypt(secret)
    except InvalidToken:
        return False
    return True


@lru_cache(maxsize=8)
def _keys(texts: tuple[str, ...]) -> list[Fernet]:
    if not texts:
        raise ImproperlyConfigured("INTEGRATIONS_VAULT_KEYS names no key.")
    return [_parse_key(text.strip()) for text in texts]


def _parse_key(text: str) -> Fernet:
    """Return a Fernet key as it is, or one derived from any other secret, so that a laptop's own needs no form."""
    try:
        return Fernet(text)
    except ValueError:
        pass
    if len(text) < SHORTEST_KEY:
        raise ImproperlyConfigured(f"A key of INTEGRATIONS_VAULT_KEYS is shorter than {SHORTEST_KEY} characters.")
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"accessa token vault").derive(text.encode())
    return Fernet(base64.urlsafe_b64encode(derived))
