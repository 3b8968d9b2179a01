"""Questions with the pages that answer them, read from a JSONL file, and their dev/test split."""

import hashlib
import json
from argparse import ArgumentTypeError
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pypdfium2

NAME = "questions.jsonl"
DEV_PERCENT = 40
SPLITS = ("test", "dev", "all")


@dataclass(frozen=True, slots=True)
class Question:
    """``gold``: pages, from 1, any of which answers it, by document. ``answer``: words that stand there, if given.

    With a ``quote``, only a passage that holds it answers.
    """

    name: str
    text: str
    gold: dict[Path, frozenset[int]]
    kind: str
    answer: str
    quote: str = ""
    given_split: str = ""

    @property
    def split(self) -> str:
        """As given, by document; otherwise by a hash of document and question, which no addition changes."""
        if self.given_split:
            return self.given_split
        document = next(iter(self.gold)).name
        digest = hashlib.sha256(f"{document}\n{self.text}".encode()).digest()
        return "dev" if int.from_bytes(digest[:4], "big") % 100 < DEV_PERCENT else "test"


def read_questions(path: str) -> list[Question]:
    """Read a JSONL file, or the one of a folder. Raises ``ArgumentTypeError`` with a sentence on what is wrong."""
    file = _file(Path(path))
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentTypeError(f"{file} cannot be read as UTF-8 text: {error}") from error
    questions = [_question(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not questions:
        raise ArgumentTypeError(f"{file} has no question")
    _require_different(sorted({document for question in questions for document in question.gold}))
    return questions


def filter_split(questions: list[Question], split: str) -> list[Question]:
    return [question for question in questions if split in ("all", question.split)]


def _require_different(documents: list[Path]) -> None:
    documents_by_digest: dict[bytes, Path] = {}
    for document in documents:
        twin = documents_by_digest.setdefault(hashlib.sha256(document.read_bytes()).digest(), document)
        if twin != document:
            raise ArgumentTypeError(f"{twin.name} and {document.name} are the same file: name one of them only")


def _file(path: Path) -> Path:
    if not path.exists():
        raise ArgumentTypeError(f"there is no {path}")
    if not path.is_dir():
        return path
    files = [path / NAME] if (path / NAME).exists() else sorted(path.glob("*.jsonl"))
    if len(files) != 1:
        raise ArgumentTypeError(f"{path} has no {NAME}, and {len(files)} other JSONL files")
    return files[0]


def _question(file: Path, number: int, line: str) -> Question:
    at = f"{file.name}, line {number}"
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ArgumentTypeError(f"{at} is not JSON: {error}") from error
    if not isinstance(row, dict) or not isinstance(row.get("question"), str) or not row["question"].strip():
        raise ArgumentTypeError(f'{at} is not an object with a "question"')
    gold = dict(_gold(file, at, each) for each in [row, *_other_documents(at, row)])
    return Question(
        name=str(row.get("id", number)),
        text=row["question"],
        gold=gold,
        kind=str(row.get("kind", "")),
        answer=str(row.get("answer", row.get("quote", ""))),
        quote=letters(str(row.get("quote", ""))),
        given_split=str(row.get("split", "")),
    )


def _other_documents(at: str, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    others = row.get("also", [])
    if not isinstance(others, list) or not all(isinstance(each, dict) for each in others):
        raise ArgumentTypeError(f'{at}: "also" is not a list of objects with "document" and "pages"')
    yield from others


def _gold(file: Path, at: str, row: dict[str, Any]) -> tuple[Path, frozenset[int]]:
    name = row.get("document")
    if not isinstance(name, str) or not name:
        raise ArgumentTypeError(f'{at} names no "document"')
    document = (file.parent / name).resolve()
    if not document.is_file():
        raise ArgumentTypeError(f"{at}: there is no {name} beside it")
    if b"%PDF-" not in _head(document):
        raise ArgumentTypeError(f"{at}: {name} is not a PDF")
    pages = row.get("pages")
    if isinstance(quote := row.get("quote"), str):
        pages = [number for number, text in enumerate(_page_letters(document), 1) if letters(quote) in text]
    if not isinstance(pages, list) or not pages or not all(type(page) is int and page > 0 for page in pages):
        raise ArgumentTypeError(f'{at}: "pages" is not a list of page numbers, from 1, nor on a page the "quote"')
    return document, frozenset(pages)


@cache
def _page_letters(document: Path) -> list[str]:
    with pypdfium2.PdfDocument(document) as pdf:
        return [letters(page.get_textpage().get_text_range()) for page in pdf]


def letters(text: str) -> str:
    """Return the text's letters and digits alone, in lower case, which line ends and hyphens do not change."""
    return "".join(filter(str.isalnum, text.lower()))


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1024)
