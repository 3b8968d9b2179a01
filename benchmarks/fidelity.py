"""Fidelity of parsed PDFs to truths made by people: reading order, tables, headings; ours beside two bare engines."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from tempfile import NamedTemporaryFile
from typing import Any

from benchmarks import fidelity_scores
from benchmarks.report import Result, print_progress
from documents.markdown.normalization import normalize_pages
from documents.parsers import pdf_engines
from documents.parsers.pdf_parser import parse_pdf
from documents.parsers.sandbox.client import SandboxClient

SUMMARY = __doc__
TRUTHS = Path(__file__).resolve().parents[2] / "shared" / "fidelity"
ENGINES = ("ours", "pdf-oxide", "liteparse")
PRINTS = ("ruled", "plain")  # the same truths printed with and without lines around the cells
GOALS = {
    "ruled": {"overall": 0.970, "nid": 0.985, "teds": 0.960, "mhs": 0.930},
    "plain": {"overall": 0.920, "nid": 0.955, "teds": 0.700, "mhs": 0.880},
}
FALSE_TABLES, PAGES_A_SECOND = 1, 150
QUICK_TRUTHS = 5
WALL_SECONDS = 120.0
FORKS = 40  # whose cost is measured


@dataclass(frozen=True)
class Leg:
    """One engine's results over the documents of one print.

    ``pages_a_cpu_second`` is without what each child costs whatever it reads: it touches the memory of its fork.
    """

    overall: float
    nid: float
    teds: float
    mhs: float
    false_tables: list[str]
    pages: int
    pages_a_cpu_second: float
    pages_a_cpu_second_with_forks: float

    def meets(self, goals: dict[str, float]) -> bool:
        """Tell whether each score and the number of false tables reach the goals."""
        return all(getattr(self, name) >= goal for name, goal in goals.items()) and (
            len(self.false_tables) <= FALSE_TABLES
        )


def add_arguments(parser: ArgumentParser) -> None:
    """Add the folder of truths."""
    parser.add_argument(
        "--truths", type=Path, default=TRUTHS, help="folder with truth/NAME.md, ruled/NAME.pdf and plain/NAME.pdf"
    )


def measure(options: Namespace) -> Result:
    """Parse and score every print with every engine."""
    truths = {path.stem: path.read_text() for path in sorted((options.truths / "truth").glob("*.md"))}
    if not truths:
        raise SystemExit(f"no truths in {options.truths}: name their folder with --truths")
    if options.quick:
        truths = dict(list(truths.items())[:QUICK_TRUTHS])
    sandbox = SandboxClient(module="benchmarks.fidelity_child")
    legs: dict[str, dict[str, Leg]] = {}
    try:
        for engine in ENGINES:
            fork = _measure_fork(sandbox, engine)
            legs[engine] = {name: _measure_leg(sandbox, engine, truths, options.truths / name, fork) for name in PRINTS}
    finally:
        sandbox.close()
    return _summarize(legs, len(truths))


def _measure_fork(sandbox: SandboxClient, engine: str) -> float:
    """Return the CPU seconds of a child that reads two lines."""
    with NamedTemporaryFile(suffix=".pdf") as file:
        file.write(pdf_engines.WARM_UP_PDF)
        file.flush()
        request = {"ask": "parse", "engine": engine, "path": file.name}
        responses = [sandbox.request(request, wall_seconds=WALL_SECONDS) for _ in range(FORKS)]
    return median([float(response["seconds"]) for response in responses])


def _measure_leg(sandbox: SandboxClient, engine: str, truths: dict[str, str], folder: Path, fork: float) -> Leg:
    scores, false_tables, seconds, page_count = [], [], 0.0, 0
    for name, truth in truths.items():
        path = folder / f"{name}.pdf"
        request = {"ask": "parse", "engine": engine, "path": str(path.resolve())}
        response = sandbox.request(request, wall_seconds=WALL_SECONDS)
        pages = response["markdown"]
        seconds += response["seconds"]
        page_count += len(pages)
        # Ours is what the product stores; a bare engine's pages are taken as they are.
        markdown = _parse_as_stored(path, len(pages)) if engine == "ours" else "\n\n".join(pages)
        scores.append(fidelity_scores.score(truth, markdown))
        if fidelity_scores.has_table(markdown) and not fidelity_scores.has_table(truth):
            false_tables.append(name)
        print_progress(engine, folder.name, name, f"{scores[-1].overall:.3f}")
    means = {
        field: fmean([value for each in scores if (value := getattr(each, field)) is not None] or [0.0])
        for field in ("overall", "nid", "teds", "mhs")
    }
    speeds = page_count / (seconds - len(truths) * fork), page_count / seconds
    return Leg(means["overall"], means["nid"], means["teds"], means["mhs"], false_tables, page_count, *speeds)


def _parse_as_stored(path: Path, pages: int) -> str:
    return normalize_pages(parse_pdf(path, pages=pages).markdown).text


def _summarize(legs: dict[str, dict[str, Leg]], documents: int) -> Result:
    ours = legs["ours"]
    slowest = min(leg.pages_a_cpu_second for leg in ours.values())
    value = fmean(leg.overall for leg in ours.values())
    bare = fmean(leg.overall for leg in legs["pdf-oxide"].values())
    met = {name: leg.meets(GOALS[name]) for name, leg in ours.items()} | {"speed": slowest >= PAGES_A_SECOND}
    engines: dict[str, Any] = {engine: {name: vars(leg) for name, leg in each.items()} for engine, each in legs.items()}
    return Result(
        name="fidelity",
        value=value,
        unit="mean overall score of ruled and plain prints",
        against="pdf-oxide bare",
        ratio=value / bare,
        goal=fmean(goals["overall"] for goals in GOALS.values()),
        ok=all(met.values()),
        details={"documents": documents, "met": met, "goals": GOALS, **engines},
    )
