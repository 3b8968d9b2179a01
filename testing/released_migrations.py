"""Migrations and names of the newest release, to compare with those of this tree.

The file RELEASED names the commit of the newest release. Without the file there is none, and migrations may change.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path


def released_commit(root: Path) -> str | None:
    """Return the commit that RELEASED names; None without the file."""
    path = root / "RELEASED"
    return path.read_text().split()[0] if path.exists() else None


def changed_migrations(root: Path, commit: str) -> list[str]:
    """Return the migrations of the release that have changed or are gone."""
    lines = _git(root, "diff", "--no-renames", "--name-status", "--diff-filter=MDT", commit, "--", "*/migrations/*.py")
    return [line.partition("\t")[2] for line in lines]


def added_migrations(root: Path, commit: str) -> set[tuple[str, str]]:
    """Return app and name of the migrations that the release does not have."""
    before = _git(root, "ls-tree", "-r", "--name-only", commit)
    now = [str(path.relative_to(root)) for path in root.glob("**/migrations/[0-9]*.py")]
    return {(Path(path).parts[-3], Path(path).stem) for path in now if path not in before}


def is_read_by(root: Path, commit: str) -> Callable[[str], bool]:
    """Return a function that tells whether the release's program names a field, column, table or model."""

    def is_read(name: str) -> bool:
        paths = ("*.py", ":!*/migrations/*", ":!*/tests/*")
        return bool(_git(root, "grep", "-iwl", "-e", name, commit, "--", *paths, codes=(0, 1)))

    return is_read


def _git(root: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> list[str]:
    ran = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    if ran.returncode not in codes:
        raise RuntimeError(f"git {arguments[0]} failed: {ran.stderr.strip()}")
    return ran.stdout.splitlines()
