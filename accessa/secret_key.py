"""The key of a laptop: made once, known to nobody else. In production SECRET_KEY says which."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def local_secret(path: Path) -> str:
    """Return the key in ``path``, made at the first call. Whoever comes first wins: all processes read the same."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f"{path.name}.{os.getpid()}")
        made.touch(mode=0o600)
        made.write_text(secrets.token_urlsafe(48))
        with suppress(FileExistsError):
            os.link(made, path)
        made.unlink()
    return path.read_text()
