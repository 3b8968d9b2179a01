"""CONTRIBUTING.md shows the code of the tree."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
BLOCK = re.compile(r"^ *```python\n *# (\S+\.py)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
EXAMPLES = BLOCK.findall(GUIDE)
NAMED = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|md))`")


def lines(code: str) -> list[str]:
    return [line.strip() for line in code.strip().splitlines()]


@pytest.mark.parametrize(("path", "shown"), EXAMPLES, ids=lambda value: value[:30])
def test_an_example_is_taken_from_the_tree(path: str, shown: str) -> None:
    assert "\n".join(lines(shown)) in "\n".join(lines((ROOT / path).read_text()))


def test_there_is_an_example_of_each_thing() -> None:
    assert {path for path, _ in EXAMPLES} >= {
        "embeddings/stages.py",
        "embeddings/stage_invariants.py",
        "accessa/pipelines.py",
        "testing/embedders.py",
        "embeddings/embedders/remote_accessa.py",
        "documents/parsers/registry.py",
        "embeddings/chunking/chunkers.py",
    }


@pytest.mark.parametrize("path", sorted(set(NAMED.findall(GUIDE))))
def test_every_file_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()
