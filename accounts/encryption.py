"""Encryption of secrets at rest under INTEGRATIONS_VAULT_KEYS: the first key encrypts, all of them decrypt."""

import base64
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

SHORTEST_KEY = 32  # characters of a key that is no Fernet key: it is not stretched, so it must be random itself


def vault() -> MultiFernet:
    return MultiFernet(_keys(tuple(settings.INTEGRATIONS_VAULT_KEYS)))


def is_under_newest_key(secret: bytes) -> bool:
    return _opens(_keys(tuple(settings.INTEGRATIONS_VAULT_KEYS))[0], secret)


def is_readable(secret: bytes) -> bool:
    """Tell whether any of the keys opens a secret."""
    return _opens(vault(), secret)


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
