"""Releases: one version, the section of the changelog, RELEASED, the tag."""

import subprocess
from datetime import date
from pathlib import Path

import pytest

from accessa import __version__
from testing import release, released_migrations

DAY = date(2026, 12, 1)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ana")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ana@example.org")
    for name in (*release.VERSION_LINES, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((release.ROOT / name).read_text())
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n### A door\n\nIt opens.\n")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Begin"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def git(tree: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=tree, check=True, capture_output=True, text=True).stdout.strip()


def test_product_and_client_state_one_version() -> None:
    assert release.stated_versions(release.ROOT) == {__version__}


def test_a_release_is_a_commit_with_its_version_its_news_and_a_tag(tree: Path) -> None:
    before = git(tree, "rev-parse", "HEAD")

    assert release.release(tree, "1.2.0", on=DAY) == "v1.2.0"

    assert release.stated_versions(tree) == {"1.2.0"}
    assert "## Unreleased\n\n## 1.2.0 (2026-12-01)\n\n### A door\n" in (tree / "CHANGELOG.md").read_text()
    assert released_migrations.released_commit(tree) == before
    assert git(tree, "status", "--porcelain") == ""
    assert git(tree, "rev-parse", "v1.2.0^{commit}") == git(tree, "rev-parse", "HEAD")


@pytest.mark.parametrize("version", ["1.2", "v1.2.0", "1.2.0\n"])
def test_what_is_no_version_is_not_released(tree: Path, version: str) -> None:
    with pytest.raises(release.ReleaseError, match="not a version"):
        release.release(tree, version, on=DAY)


def test_uncommitted_changes_an_old_tag_and_no_news_are_not_released(tree: Path) -> None:
    release.release(tree, "1.2.0", on=DAY)

    with pytest.raises(release.ReleaseError, match=r"tag v1\.2\.0"):
        release.release(tree, "1.2.0", on=DAY)
    with pytest.raises(release.ReleaseError, match="says nothing"):
        release.release(tree, "1.3.0", on=DAY)
    (tree / "CHANGELOG.md").write_text("changed")
    with pytest.raises(release.ReleaseError, match="not committed"):
        release.release(tree, "1.3.0", on=DAY)
