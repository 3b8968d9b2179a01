"""Verified reading of a law's artifacts from the bucket or from a folder that is a copy of it."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfile
from tempfile import NamedTemporaryFile
from typing import Protocol

from documents.error_codes import HASH_MISMATCH
from statutes.error_codes import MANIFEST_INVALID
from statutes.s3 import client, keys, manifests
from statutes.s3.manifests import Entry, Manifest, ManifestRefused

DIFFERENT_OBJECT = "An object is not the one that the manifest names: read it again."


class Source(Protocol):
    def read(self, key: str, most: int) -> bytes: ...
    def fetch(self, key: str, to: Path, most: int) -> None: ...


class BucketSource:
    def __init__(self, name: str) -> None:
        self._name = name

    def read(self, key: str, most: int) -> bytes:
        return client.read_object(self._name, key, most=most)

    def fetch(self, key: str, to: Path, most: int) -> None:
        client.download_object(self._name, key, to, most=most)


class FolderSource:
    """A folder as ``aws s3 sync`` makes it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, key: str, most: int) -> bytes:
        with (self._root / key).open("rb") as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise client.ObjectTooLarge
        return content

    def fetch(self, key: str, to: Path, most: int) -> None:
        if (self._root / key).stat().st_size > most:
            raise client.ObjectTooLarge
        copyfile(self._root / key, to)


def read_manifest(source: Source, law_id: str) -> tuple[Manifest, str]:
    """Return a law's manifest and its sha256. Raises ``ManifestRefused``, and ``FileNotFoundError`` without one."""
    content = source.read(keys.manifest(law_id), manifests.MAX_BYTES)
    manifest = manifests.parse_manifest(content)
    if manifest.law_id != law_id:
        raise ManifestRefused(MANIFEST_INVALID, "The manifest is another law's.")
    return manifest, hashlib.sha256(content).hexdigest()


def read_verified(source: Source, entry: Entry) -> bytes:
    """Return an object whose hash is the manifest's; raise ``ManifestRefused("HASH_MISMATCH")`` otherwise."""
    try:
        content = source.read(entry.key, max(1, entry.size))
    except (client.ObjectTooLarge, FileNotFoundError):
        raise ManifestRefused(HASH_MISMATCH, DIFFERENT_OBJECT) from None
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise ManifestRefused(HASH_MISMATCH, DIFFERENT_OBJECT)
    return content


@contextmanager
def verified_file(source: Source, entry: Entry) -> Iterator[Path]:
    """Yield a large object as a temporary file with a verified hash; raises as ``read_verified``."""
    with NamedTemporaryFile(prefix="accessa-vectors-") as file:
        path = Path(file.name)
        try:
            source.fetch(entry.key, path, max(1, entry.size))
        except (client.ObjectTooLarge, FileNotFoundError):
            raise ManifestRefused(HASH_MISMATCH, DIFFERENT_OBJECT) from None
        with path.open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() != entry.sha256:
                raise ManifestRefused(HASH_MISMATCH, DIFFERENT_OBJECT)
        yield path
