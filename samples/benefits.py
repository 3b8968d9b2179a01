"""Benefits in text/benefits/, one TOML file a chapter, as booklet sections and summary rows."""

import re
import tomllib
from pathlib import Path
from typing import Any

from reportlab.platypus import Flowable, KeepTogether, Paragraph, Table

from samples.layout import BODY, BULLET, HEADINGS, ruled

FOLDER = Path(__file__).parent / "text" / "benefits"
DEDUCTIBLE = 1_500
OUT_OF_POCKET = 6_500
CHARGE = 1.4  # what a provider outside the network bills, for each dollar that the plan allows


def chapters() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def chapter(name: str) -> list[Flowable]:
    """Return a chapter of the Evidence of Coverage; its number begins the file's name."""
    number, content = int(name[:2]), _content(name)
    start = [Paragraph(f"Chapter {number}: {content['chapter']}", HEADINGS[1]), Paragraph(content["intro"], BODY)]
    sections = [_section(f"{number}.{order}", benefit) for order, benefit in enumerate(content["benefit"], start=1)]
    return start + [flowable for section in sections for flowable in section]


def summary(name: str) -> Table:
    """Return the costs of a chapter's benefits, one row a benefit."""
    head = ["Service", "In network, you pay", "Out of network, you pay", "Limits", "Prior authorization"]
    fields = ("name", "network", "outside", "limit", "approval")
    return ruled([head] + [[benefit[field] for field in fields] for benefit in _content(name)["benefit"]])


def _content(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def _section(number: str, benefit: dict[str, Any]) -> list[Flowable]:
    title = Paragraph(f"Section {number} {benefit['name']}", HEADINGS[2])
    return [
        KeepTogether([title, Paragraph(benefit["detail"], BODY), _costs(benefit)]),
        *_listed("What is covered", benefit["covered"]),
        *_listed("What is not covered", benefit["excluded"]),
        *_examples(benefit),
    ]


def _costs(benefit: dict[str, Any]) -> Table:
    rows = [
        ["Your costs and limits", benefit["name"]],
        ["In network, you pay", benefit["network"]],
        ["Out of network, you pay", benefit["outside"]],
        ["Limits", benefit["limit"]],
        ["Prior authorization", benefit["approval"]],
    ]
    return ruled(rows, [1, 2.4])


def _listed(title: str, items: list[str]) -> list[Flowable]:
    lines = [Paragraph(f"{item}.", BULLET, bulletText="\u2022") for item in items]
    return [Paragraph(title, HEADINGS[3]), *lines]


def _examples(benefit: dict[str, Any]) -> list[Flowable]:
    """Worked examples, for the benefits whose cost is one plain copay or percentage."""
    allowed = benefit["allowed"]
    examples = [_network_example(benefit["network"], allowed), _outside_example(benefit["outside"], allowed)]
    paragraphs = [Paragraph(text, BODY) for text in examples if text]
    return [Paragraph("Example", HEADINGS[3]), *paragraphs] if paragraphs else []


def _network_example(cost: str, allowed: int) -> str:
    if copay := re.fullmatch(r"\$(\d+) copay", cost):
        share = min(int(copay[1]), allowed)
        return (
            f"The allowed amount of a network provider is {_money(allowed)}. You pay the copay of {_money(share)}, "
            f"the plan pays {_money(allowed - share)}, and the deductible plays no part."
        )
    if rate := re.fullmatch(r"(\d+)% after deductible", cost):
        return _after_deductible(int(rate[1]), allowed)
    if cost == "No charge":
        return f"A network provider's allowed amount of {_money(allowed)} is paid by the plan in full."
    return ""


def _after_deductible(rate: int, allowed: int) -> str:
    met = allowed * rate / 100
    open_ = min(allowed, DEDUCTIBLE)
    unmet = open_ + (allowed - open_) * rate / 100
    if unmet > OUT_OF_POCKET:  # the out-of-pocket maximum would need a longer story
        return (
            f"The allowed amount is {_money(allowed)}, of which {rate}% would be {_money(met)}. "
            f"The out-of-pocket maximum of {_money(OUT_OF_POCKET)} for one person limits what you pay."
        )
    return (
        f"The allowed amount of a network provider is {_money(allowed)}. If you have met your deductible, you pay "
        f"{rate}%, which is {_money(met)}. If you have met none of it, you pay the first {_money(open_)} and {rate}% "
        f"of whatever is left, together {_money(unmet)}."
    )


def _outside_example(cost: str, allowed: int) -> str:
    rate = re.fullmatch(r"(\d+)% after deductible", cost)
    if not rate or allowed > 12_000:
        return ""
    billed, share = allowed * CHARGE, allowed * int(rate[1]) / 100
    return (
        f"A provider outside the network charges {_money(billed)} for the same service. Your deductible being met, "
        f"you pay {rate[1]}% of {_money(allowed)}, which is {_money(share)}, and may be billed the difference of "
        f"{_money(billed - allowed)}, so that the visit could cost you {_money(share + billed - allowed)} in all."
    )


def _money(amount: float) -> str:
    return f"${amount:,.2f}".removesuffix(".00")
