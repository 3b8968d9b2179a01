"""Local files of a machine: the folder ACCESSA_VAR, and keys generated in it."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from accessa.env import Env

ROOT = Path(__file__).resolve().parent.parent


def var_folder(env: Env) -> Path:
    """Return ACCESSA_VAR: the folder of the embedded database, local files and local keys."""
    return Path(env.str("ACCESSA_VAR", default=str(ROOT / "var"))).resolve()


def local_secret(path: Path) -> str:
    """Return the key in ``path``, generated at the first call; concurrent processes agree on one."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(48))
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    return path.read_text()
