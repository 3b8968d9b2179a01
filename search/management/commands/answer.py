"""Answers from the command line."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.errors import ApiError
from accounts.tenants import find_tenant_id
from search.answers.services import AnswerSentence, answer
from search.services import STATUTES, UPLOADS


class Command(BaseCommand):
    help = "Answers a question in sentences of a tenant's documents, each with its citation, the best first."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("question")
        parser.add_argument("--user", help="e-mail or id; may be left out while there is only one")
        parser.add_argument("--statutes", action="store_true", help="answer from statutes too")

    def handle(self, *args: Any, **options: Any) -> None:
        sources = [UPLOADS, STATUTES] if options["statutes"] else [UPLOADS]
        try:
            response = answer(user_id=find_tenant_id(options["user"]), question=options["question"], sources=sources)
        except ApiError as refused:
            raise CommandError(f"{refused.code}: {refused.detail}") from None
        if not response.answered:
            self.stdout.write(response.text)
        agreed = [sentence for sentence in response.sentences if sentence not in response.contradiction]
        parts = [("", agreed), ("The documents differ:\n", response.contradiction)]
        for title, sentences in reversed(parts) if response.is_disputed else parts:
            self.stdout.write(title * bool(sentences), ending="")
            for sentence in sentences:
                self._write(sentence)

    def _write(self, sentence: AnswerSentence) -> None:
        self.stdout.write(sentence.text)
        for cited in sentence.citations:
            page = f", page {cited.page}" if cited.page else ""
            date = f", of {cited.dated_at:%Y-%m-%d}" if cited.dated_at else ""
            self.stdout.write(f"   {cited.title}{page}{date}")
