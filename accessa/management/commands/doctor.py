"""manage.py doctor: run the checks of a deployment and print findings with remedies."""

import json
import logging
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accessa.doctor import embedded_server, public_urls
from accessa.doctor.findings import Level
from accessa.doctor.registry import CHECKS, UPGRADE_CHECKS
from accessa.doctor.runner import CheckResult, run_checks

NAMES = tuple(check.name for check in CHECKS)
MARKS = {Level.OK: "ok", Level.WARNING: "warn", Level.ERROR: "FAIL", Level.SKIPPED: "skip"}
UPGRADE_NAMES = tuple(check.name for check in UPGRADE_CHECKS)
WIDTH = max(map(len, NAMES))


class Command(BaseCommand):
    help = "Checks a deployment end to end and prints remedies. Exits 1 when a check fails."
    requires_system_checks = ()  # they are one of the checks, and the others run too

    def add_arguments(self, parser: ArgumentParser) -> None:
        names = (*NAMES, *(name for name in UPGRADE_NAMES if name not in NAMES))
        parser.add_argument("--only", action="append", default=[], choices=names, metavar="NAME", help=", ".join(names))
        parser.add_argument("--skip", action="append", default=[], choices=names, metavar="NAME")
        parser.add_argument(
            "--before-upgrade",
            action="store_true",
            help=f"with the new version, before `migrate`, while the old one runs: {', '.join(UPGRADE_NAMES)}",
        )
        parser.add_argument("--json", action="store_true", help="one JSON object a line, for machines")

    def handle(self, *, only: list[str], skip: list[str], **options: Any) -> None:
        checks = UPGRADE_CHECKS if options["before_upgrade"] else CHECKS
        if other := set(only) - {check.name for check in checks}:
            mode = "with" if options["before_upgrade"] else "without"
            raise CommandError(f"No check {mode} --before-upgrade: {', '.join(sorted(other))}.")
        if not embedded_server.database_exists():  # no other check may create one
            only, skip = only and ["database", *only], [name for name in skip if name != "database"]
        logging.disable(logging.ERROR)  # the checks report the errors that they provoke
        levels: list[Level] = []
        try:
            with public_urls.public_url_of_serve(), embedded_server.embedded_server_running():
                for outcome in run_checks(checks, only=only, skip=skip):
                    levels.append(outcome.level)
                    if options["json"]:
                        rows = [{"level": f.level, "says": f.message, "remedy": f.remedy} for f in outcome.findings]
                        row = {"check": outcome.name, "level": outcome.level, "seconds": round(outcome.seconds, 3)}
                        self.stdout.write(json.dumps(row | {"findings": rows}))
                    else:
                        self._print_findings(outcome)
                    self.stdout.flush()
        finally:
            logging.disable(logging.NOTSET)
        failed, doubtful = levels.count(Level.ERROR), levels.count(Level.WARNING)
        warnings = f"{doubtful} warning{'' if doubtful == 1 else 's'}"
        if not options["json"]:
            works = "The upgrade can begin" if options["before_upgrade"] else "It works"
            summary = f"{works}, with {warnings}." if doubtful else "All is well."
            self.stdout.write(f"{failed} check{'' if failed == 1 else 's'} failed, {warnings}." if failed else summary)
        if failed:
            raise SystemExit(1)

    def _print_findings(self, outcome: CheckResult) -> None:
        colours = {Level.ERROR: self.style.ERROR, Level.WARNING: self.style.WARNING, Level.OK: self.style.SUCCESS}
        for finding in outcome.findings:
            mark = colours.get(finding.level, str)(f"{MARKS[finding.level]:4}")
            self.stdout.write(f"{mark}  {outcome.name:{WIDTH}}  {finding.message}")
            if finding.remedy:
                self.stdout.write(f"{'':{WIDTH + 8}}-> {finding.remedy}")
