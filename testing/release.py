"""Release: version, section of the changelog, RELEASED, tag and the wheel of the client.

``python -m testing.release 1.0.0`` on a clean main whose `make check` has passed. It pushes nothing.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSION = re.compile(r"\d+\.\d+\.\d+")
UNRELEASED = "## Unreleased\n"
#  file that states the version               the line that does
VERSION_LINES = {
    "accessa/__init__.py": re.compile(r'(?m)^(__version__ = ")([^"]+)(")'),
    "clients/python/pyproject.toml": re.compile(r'(?m)^(version = ")([^"]+)(")'),
}


class ReleaseError(Exception):
    """The release cannot be made; the message says why. Nothing was changed."""


def stated_versions(root: Path) -> set[str]:
    """Return the versions that the product and its client state: one, unless they differ."""
    return {match[2] for name, line in VERSION_LINES.items() for match in line.finditer((root / name).read_text())}


def release(root: Path, version: str, *, on: date) -> str:
    """Commit and tag a release; return its tag. RELEASED names the commit before it, whose program it is."""
    tag = f"v{version}"
    if not VERSION.fullmatch(version):
        raise ReleaseError(f"{version} is not a version like 1.0.0.")
    if _git(root, "status", "--porcelain"):
        raise ReleaseError("There are changes that are not committed.")
    if _git(root, "tag", "--list", tag):
        raise ReleaseError(f"The tag {tag} is there already.")
    changelog = (root / "CHANGELOG.md").read_text()
    _, found, news = changelog.partition(UNRELEASED)
    if not found or not news.partition("\n## ")[0].strip():
        raise ReleaseError("CHANGELOG.md says nothing below Unreleased.")
    commit = _git(root, "rev-parse", "HEAD").strip()
    for name, line in VERSION_LINES.items():
        (root / name).write_text(line.sub(rf"\g<1>{version}\g<3>", (root / name).read_text()))
    (root / "CHANGELOG.md").write_text(changelog.replace(UNRELEASED, f"{UNRELEASED}\n## {version} ({on})\n", 1))
    (root / "RELEASED").write_text(f"{commit} {tag}\n")
    _git(root, "add", "RELEASED", "CHANGELOG.md", *VERSION_LINES)
    _git(root, "commit", "--quiet", "--message", f"Release {version}")
    _git(root, "tag", "--annotate", "--message", f"Accessa {version}", tag)
    return tag


def build_wheel(root: Path) -> Path:
    """Build the wheel of the client into var/release and return it. Built in a copy: setuptools leaves files."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(root / "clients/python", client := Path(folder) / "client")
        build = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            "var/release",
            str(client),
        ]
        subprocess.run(build, cwd=root, check=True)
    return max((root / "var/release").glob("accessa-*.whl"), key=lambda wheel: wheel.stat().st_mtime)


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m testing.release VERSION")
    try:
        tag = release(ROOT, sys.argv[1], on=datetime.now(UTC).date())
    except ReleaseError as refusal:
        raise SystemExit(str(refusal)) from None
    print(f"{tag} is committed and tagged.")
    try:
        print(f"{build_wheel(ROOT)} is built.\nPublish both: git push --follow-tags")
    except subprocess.CalledProcessError:
        again = "python -m pip wheel --no-deps --wheel-dir var/release ./clients/python"
        raise SystemExit(f"The client's wheel could not be built, for the reason above. Again: {again}") from None
