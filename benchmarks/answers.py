"""Answers: facts in extractive answers to 100 questions and in the first lines to members' everyday questions."""

import json
import re
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from django.test import override_settings

from accounts.errors import ApiError
from benchmarks import question_sets, retrieval, stored_pdfs
from benchmarks.questions import SPLITS
from benchmarks.report import Result
from embeddings.search.lexemes import query_lexemes
from embeddings.search.results import render_snippets, strip_marks
from samples import make_retrieval
from search.answers.services import Answer, AnswerSentence, answer
from search.error_codes import NO_WORDS
from testing.fakes.openai import OpenAIServer

SUMMARY = __doc__
SET = "answers"
LEAST_EXACT, MOST_WRONG = 0.60, 0.05
QUICK_DOCUMENTS = ("PerksPlus.pdf", "Benefit_Options.pdf")
QUICK_OFF_TOPIC = 10
EVERYDAY = question_sets.HERE / "everyday.jsonl"
SAMPLES, PLANS = "samples", "plans"
COLLECTIONS = {SAMPLES: (stored_pdfs.SAMPLES,), PLANS: (question_sets.SHARED / "pdfs" / "plans",)}
# Of booklets and tables that samples/ has as text or PDF, and pages of other authors: each collection is in one half.
TABLES = stored_pdfs.SAMPLES / "tables"
PAGES, RULED = question_sets.SHARED / "pdfs" / "pages", question_sets.SHARED / "fidelity" / "ruled"
PRINTED: dict[str, tuple[str | Path, ...]] = {
    "dental and vision": ("dental_plan.pdf", "vision_plan.pdf"),
    "gold plan": (TABLES / "gold_ppo.pdf", TABLES / "drug_tiers.pdf"),
    "medicare supplement": ("medicare_supplement.pdf",),
    "disability": ("short_term_disability.pdf",),
    "travel policy": ("travel_medical.pdf",),
    "drug list and silver plan": ("drug_list.pdf", TABLES / "silver_hmo.pdf"),
    "home policy": (TABLES / "home.pdf",),
    "dental schedule": (TABLES / "dental_schedule.pdf",),
    "reading pages": (
        PAGES / "multi_column_miss.pdf",
        *(RULED / f"010300000000{number}.pdf" for number in ("53", "71")),
        RULED / "01030000000129.pdf",
    ),
    "motor policy": (TABLES / "motor.pdf",),
    "travel cover": (TABLES / "travel.pdf",),
    "life rates and vision rider": (TABLES / "rates.pdf", TABLES / "vision_hearing.pdf"),
    "reading pages two": (
        PAGES / "ff518b1240a66978f22035528ccb029450b5_pg2.pdf",
        PAGES / "openstax_caculus_pg_273.pdf",
        *(RULED / f"010300000000{number}.pdf" for number in ("21", "59", "85")),
    ),
}


@dataclass(frozen=True, slots=True)
class FactQuestion:
    """``facts``: words any of which answer, in the document called ``document``."""

    text: str
    document: Path
    facts: tuple[str, ...]
    split: str

    def answered_by(self, text: str) -> bool:
        return any(_holds(text, fact) for fact in self.facts)


@dataclass(frozen=True, slots=True)
class EverydayQuestion:
    """``facts``: lists of words of which one must stand whole in the first line; none: the question is off topic.

    ``history`` has the questions before a follow-up, ``collection`` is the tenant's documents.
    """

    text: str
    history: tuple[str, ...]
    collection: str
    facts: tuple[tuple[str, ...], ...]
    split: str

    def answered_by(self, text: str) -> bool:
        return any(all(_holds(text, words) for words in fact) for fact in self.facts)


@dataclass(frozen=True, slots=True)
class Judgement:
    """``wrong``: an answer without the fact, whose first sentence is another document's."""

    exact: bool
    exact_first: bool
    wrong: bool
    refused: bool
    excerpt: bool
    snippet: bool
    characters: int


@dataclass(frozen=True, slots=True)
class Invention:
    """Sentences of a model that invents: how many were kept, which share of these is grounded, how many dropped."""

    groundedness: float
    kept: int
    dropped: int


@dataclass(frozen=True, slots=True)
class FirstLine:
    """What the first line of an answer to an everyday question has; ``answered``: the fact is in some line."""

    is_on_topic: bool
    exact: bool
    answered: bool
    refused: bool


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--embedder", type=retrieval.parse_embedder, default="local", help="as EMBEDDER; default: local"
    )
    retrieval.add_sentence_model(parser)
    parser.add_argument("--split", choices=SPLITS, default="test", help="of the documents; default: test")


def measure(options: Namespace) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        questions = read_facts(question_sets.open_set(SET, Path(folder)))
        if options.quick:
            questions = [each for each in questions if each.document.name in QUICK_DOCUMENTS]
        documents = sorted({each.document for each in questions})
        retrieval.ingest(documents, options.embedder)
        retrieval.embed_sentences(options.sentence_model)
        chosen = [each for each in questions if options.quick or options.split in ("all", each.split)]
        judged = [judge(question) for question in chosen]
        off_topic = question_sets.off_topic_questions()[: QUICK_OFF_TOPIC if options.quick else None]
        refused = [is_refused(question) for question in off_topic]
        invention = measure_invention([question.text for question in chosen])
    everyday = measure_everyday(options)
    return _result(options, len(documents), judged, refused, invention, everyday)


def measure_everyday(options: Namespace) -> dict[str, dict[str, float]]:
    """Ask members' questions of each collection alone; quickly of the plans, which are there already."""
    figures = {}
    asked = [each for each in read_everyday() if options.quick or options.split in ("all", each.split)]
    with tempfile.TemporaryDirectory() as folder:
        if not options.quick:
            make_retrieval.make(Path(folder))
        for name, documents in _collections(Path(folder)).items():
            chosen = [each for each in asked if each.collection == name]
            if not chosen or (options.quick and name != PLANS):
                continue
            if not options.quick:
                retrieval.ingest(documents, options.embedder)
                retrieval.embed_sentences(options.sentence_model)
            figures[name] = _everyday_figures([read_first_line(each) for each in chosen])
    return figures


def _collections(folder: Path) -> dict[str, list[Path]]:
    """Return each collection's documents; the booklets are those in ``folder``."""
    places = {name: [folder / each for each in documents] for name, documents in PRINTED.items()}
    return {
        name: [path for place in each for path in stored_pdfs.pdf_paths(place)]
        for name, each in (COLLECTIONS | places).items()
    }


def read_everyday() -> list[EverydayQuestion]:
    rows = map(json.loads, EVERYDAY.read_text(encoding="utf-8").splitlines())
    return [
        EverydayQuestion(
            row["question"], tuple(row.get("history", ())), row["collection"], tuple(map(tuple, row["facts"])),
            row["split"],
        )
        for row in rows
    ]  # fmt: skip


def read_first_line(question: EverydayQuestion) -> FirstLine:
    try:
        texts = [sentence.text for sentence in ask(question.text, question.history).sentences]
    except ApiError as error:
        if error.code != NO_WORDS:
            raise
        texts = []
    return FirstLine(
        is_on_topic=bool(question.facts),
        exact=any(map(question.answered_by, texts[:1])),
        answered=any(map(question.answered_by, texts)),
        refused=not texts,
    )


def _everyday_figures(lines: Sequence[FirstLine]) -> dict[str, float]:
    on_topic = [each for each in lines if each.is_on_topic]
    off_topic = [each for each in lines if not each.is_on_topic]
    return {
        "questions": len(on_topic),
        "exact_in_first_line": fmean(each.exact for each in on_topic),
        "exact": fmean(each.answered for each in on_topic),
        "refused": fmean(each.refused for each in on_topic),
        "off_topic": len(off_topic),
        **({"off_topic_refused": fmean(each.refused for each in off_topic)} if off_topic else {}),
    }


def read_facts(path: Path) -> list[FactQuestion]:
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        FactQuestion(row["question"], (path.parent / row["document"]).resolve(), tuple(row["facts"]), row["split"])
        for row in rows
    ]


def ask(question: str, history: Sequence[str] = ()) -> Answer:
    return answer(user_id=retrieval.TENANT, question=question, history=history)


def is_refused(question: str) -> bool:
    try:
        return not ask(question).sentences
    except ApiError as error:
        return error.code == NO_WORDS


def judge(question: FactQuestion) -> Judgement:
    given = ask(question.text)
    texts = [sentence.text for sentence in given.sentences]
    exact = any(map(question.answered_by, texts))
    first = given.results.passages[:1]
    excerpts = render_snippets([each.text for each in first], query_lexemes(question.text))
    return Judgement(
        exact=exact,
        exact_first=any(map(question.answered_by, texts[:1])),
        wrong=bool(texts) and not exact and given.sentences[0].citations[0].title != question.document.name,
        refused=not texts,
        excerpt=any(question.answered_by(strip_marks(each)) for each in excerpts),
        snippet=any(question.answered_by(each.snippet_text) for each in first),
        characters=sum(map(len, texts)),
    )


def measure_invention(questions: Sequence[str]) -> Invention:
    """Let a fake model answer that invents figures, names and contacts beside true sentences."""
    numbers: list[bool] = []
    dropped = 0
    with OpenAIServer(exact_tokens=False) as server:
        server.responses.mode = "invents figures"
        with override_settings(ANSWERER="openai", OPENAI_API_KEY=server.key, OPENAI_BASE_URL=server.url):
            for question in questions:
                given = ask(question)
                dropped += given.dropped_sentences
                numbers += [_is_grounded(each, given) for each in given.sentences if given.answerer == "openai"]
    return Invention(fmean(numbers) if numbers else 0.0, len(numbers), dropped)


def _is_grounded(sentence: AnswerSentence, given: Answer) -> bool:
    """Tell whether the sentence's figures stand in what it cites: by digits alone, not by the product's rules."""
    cited = {citation.chunk_id for citation in sentence.citations}
    passages = (*given.results.passages, *given.results.nearest)
    texts = (f"{each.filename} {each.headings} {each.text}" for each in passages if each.chunk_id in cited)
    return _digits(sentence.text) <= _digits(" ".join(texts)) and "Zebulon" not in sentence.text


def _digits(text: str) -> set[str]:
    """Return the groups of digits, without the last zeros of a fraction: 13.20 is 13.2."""
    return set(re.findall(r"\d+", re.sub(r"(?<=\d)\.(\d*?)0+(?!\d)", r".\1", text)))


def _holds(text: str, words: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(_normalize(words))}(?!\w)", _normalize(text)))


def _normalize(text: str) -> str:
    """Return lower case with single spaces, without the commas of numbers and the marks of line breaks."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text.lower()).replace("-", " ")
    return " ".join(text.split())


def _result(
    options: Namespace,
    documents: int,
    judged: Sequence[Judgement],
    off_topic: Sequence[bool],
    invention: Invention,
    everyday: dict[str, dict[str, float]],
) -> Result:
    exact, baseline = _share(judged, "exact"), _share(judged, "excerpt")
    wrong = _share(judged, "wrong")
    return Result(
        name="answers",
        value=exact,
        unit="share of questions whose fact is in the extractive answer",
        against=f"the excerpt of 40 words of the first passage: {baseline:.3f}",
        ratio=exact / baseline if baseline else 0.0,
        goal=f"at least {LEAST_EXACT:.2f}; wrong document's answer at most {MOST_WRONG:.2f}; groundedness 1",
        ok=exact >= LEAST_EXACT and wrong <= MOST_WRONG and invention.groundedness == 1.0,
        details={
            "split": options.split,
            "embedder": options.embedder,
            "questions": len(judged),
            "documents": documents,
            "exact_in_first_sentence": _share(judged, "exact_first"),
            "wrong_document": wrong,
            "refused": _share(judged, "refused"),
            "snippet_of_first_passage": _share(judged, "snippet"),
            "characters": fmean(each.characters for each in judged),
            "off_topic": len(off_topic),
            "off_topic_refused": fmean(off_topic),
            "groundedness": invention.groundedness,
            "model_sentences_kept": invention.kept,
            "model_sentences_dropped": invention.dropped,
            "everyday": everyday,
        },
    )


def _share(judged: Sequence[Judgement], name: str) -> float:
    return fmean(float(getattr(each, name)) for each in judged)
