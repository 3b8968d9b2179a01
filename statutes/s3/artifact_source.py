"""Where a law's artifacts are read from: the bucket, or a folder that is a copy of it. Nothing is believed unhashed."""

from __future__ import annotations

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
    """As ``aws s3 sync`` leaves it."""

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
    found = manifests.parse_manifest(content)
    if found.law_id != law_id:
        raise ManifestRefused(MANIFEST_INVALID, "The manifest is another law's.")
    return found, hashlib.sha256(content).hexdigest()


def read_verified(source: Source, entry: Entry) -> bytes:
    """Return an object that is what the manifest says; raise ``ManifestRefused("HASH_MISMATCH")`` otherwise."""
    try:
        content = source.read(entry.key, max(1, entry.size))
    except (client.ObjectTooLarge, FileNotFoundError):
        raise _differs() from None
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise _differs()
    return content


@contextmanager
def verified_file(source: Source, entry: Entry) -> Iterator[Path]:
    """Lend a large object as a file, once its hash is known to be right; raises as ``trusted``."""
    with NamedTemporaryFile(prefix="accessa-vectors-") as file:
        path = Path(file.name)
        try:
            source.fetch(entry.key, path, max(1, entry.size))
        except (client.ObjectTooLarge, FileNotFoundError):
            raise _differs() from None
        with path.open("rb") as written:
            if hashlib.file_digest(written, "sha256").hexdigest() != entry.sha256:
                raise _differs()
        yield path


def _differs() -> ManifestRefused:
    return ManifestRefused(HASH_MISMATCH, "An object is not the one that the manifest names: read it again.")
