"""Page of a statute's passage: its text, the article and the sentence that a citation refers to."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.safestring import SafeString, mark_safe

from accounts.rate_limit import PAGE_VIEWS, check_rate
from documents.markdown import html_renderer
from portal.page_access import tenant_id, tenant_page
from portal.views.documents import parse_span
from statutes.article_citations import StatutePassage, strip_anchors
from statutes.search import get_passage


@tenant_page("GET", "HEAD")
def statute(request: HttpRequest, chunk_id: UUID) -> HttpResponse:
    check_rate(PAGE_VIEWS, tenant_id(request))
    place = get_passage(chunk_id)
    passage, span = place.passage, parse_span(request.GET.get("span", ""))
    if span and not passage.start <= span[0] < span[1] <= passage.end:
        span = None
    context = {
        "place": place,
        "law": passage,
        "citation": passage.cite(*span) if span else passage.citation,
        "text": render_passage(passage, span),
        "is_cited": span is not None,
    }
    return render(request, "portal/statute.html", context)


def render_passage(passage: StatutePassage, span: tuple[int, int] | None) -> SafeString:
    """Return the passage as safe HTML; what stands at ``span`` of the statute's text is highlighted."""
    if span is None:
        return html_renderer.render_html(strip_anchors(passage.text))
    start, end = span[0] - passage.start, span[1] - passage.start
    before, cited, after = map(strip_anchors, (passage.text[:start], passage.text[start:end], passage.text[end:]))
    markup = html_renderer.render_html(before + cited + after, highlight=(len(before), len(before) + len(cited)))
    # The first highlight is the target of a citation's link.
    return mark_safe(markup.replace("<mark>", '<mark id="cited">', 1))  # noqa: S308 - one fixed attribute in safe HTML
