"""Pages of the site that are kept elsewhere in the repository, and links to files that the site does not have."""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "clients/python/README.md": "client.md",
}
LINK = re.compile(r"(!?)\[([^\]\n]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    for source, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Files, **_: Any) -> str:
    """Turn links into the repository into links between pages, or into plain text where the site has no such page."""
    sources = {uri: source for source, uri in PAGES.items()}
    source = PurePosixPath(sources.get(page.file.src_uri, f"docs/{page.file.src_uri}"))

    def site_link(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups()
        path = _resolve(source.parent / target)
        uri = PAGES.get(path, path.removeprefix("docs/"))
        if path.startswith("docs/") and path.endswith("/"):
            uri = f"{path.removeprefix('docs/')}README.md"
        if files.get_file_from_path(uri) is None or (path == uri and path not in PAGES):
            if not (ROOT / path).exists():
                raise ValueError(f"{source}: there is no {path}.")
            return text
        return f"{image}[{text}]({_relative(uri, page.file.src_uri)}{anchor or ''})"

    return LINK.sub(site_link, markdown)


def _resolve(path: PurePosixPath) -> str:
    """Return the path without ``..``, from the repository's root; a folder ends with a slash."""
    resolved = (ROOT / path).resolve().relative_to(ROOT).as_posix()
    return f"{resolved}/" if (ROOT / resolved).is_dir() else resolved


def _relative(target: str, page: str) -> str:
    return "../" * page.count("/") + target
