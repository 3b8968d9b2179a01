"""manage.py doctor: what works, what does not, and what to do about it."""

from __future__ import annotations

import json
import logging
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from accessa.doctor.database import is_made
from accessa.doctor.environment import as_it_was, where_it_is_served
from accessa.doctor.registry import CHECKS, NAMES
from accessa.doctor.runner import Level, Verdict, examine

MARKS = {Level.OK: "ok", Level.WARNING: "warn", Level.ERROR: "FAIL", Level.SKIPPED: "skip"}
WIDTH = max(map(len, NAMES))


class Command(BaseCommand):
    help = "Does each thing for real, says what works, and what to do if not. Exits 1 when something does not."
    requires_system_checks = ()  # it makes them itself, and goes on

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--only", action="append", default=[], choices=NAMES, metavar="NAME", help=", ".join(NAMES))
        parser.add_argument("--skip", action="append", default=[], choices=NAMES, metavar="NAME")
        parser.add_argument("--json", action="store_true", help="one JSON object a line, for machines")

    def handle(self, *, only: list[str], skip: list[str], **options: Any) -> None:
        if not is_made():  # whatever else is asked for must not make one
            only, skip = only and ["database", *only], [name for name in skip if name != "database"]
        logging.disable(logging.ERROR)  # what a check provokes is told by the check
        worst: list[Level] = []
        try:
            with where_it_is_served(), as_it_was():
                for verdict in examine(CHECKS, only=only, skip=skip):
                    worst.append(verdict.level)
                    for line in _json(verdict) if options["json"] else self._lines(verdict):
                        self.stdout.write(line)
                    self.stdout.flush()
        finally:
            logging.disable(logging.NOTSET)
        failed, doubtful = worst.count(Level.ERROR), worst.count(Level.WARNING)
        if not options["json"]:
            self.stdout.write(_sum(failed, doubtful))
        if failed:
            raise SystemExit(1)

    def _lines(self, verdict: Verdict) -> list[str]:
        colour = {Level.ERROR: self.style.ERROR, Level.WARNING: self.style.WARNING, Level.OK: self.style.SUCCESS}
        lines = []
        for finding in verdict.findings:
            mark = colour.get(finding.level, str)(f"{MARKS[finding.level]:4}")
            lines.append(f"{mark}  {verdict.name:{WIDTH}}  {finding.says}")
            if finding.remedy:
                lines.append(f"{'':{WIDTH + 8}}-> {finding.remedy}")
        return lines


def _json(verdict: Verdict) -> list[str]:
    findings = [{"level": each.level, "says": each.says, "remedy": each.remedy} for each in verdict.findings]
    told = {"check": verdict.name, "level": verdict.level, "seconds": round(verdict.seconds, 3), "findings": findings}
    return [json.dumps(told)]


def _sum(failed: int, doubtful: int) -> str:
    warnings = f"{doubtful} warning{'' if doubtful == 1 else 's'}"
    if failed:
        return f"{failed} check{'' if failed == 1 else 's'} failed, {warnings}."
    return f"It works, with {warnings}." if doubtful else "All is well."
