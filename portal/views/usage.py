"""Page of what the signed-in user has stored and spent."""

from django.db.models import Count, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from accounts import rate_limit
from accounts.number_formats import format_money
from accounts.rls import as_tenant
from documents.models import Document
from portal.page_access import tenant_id, tenant_page
from vendors import ledger

DAYS = 30


@tenant_page("GET", "HEAD")
def usage(request: HttpRequest) -> HttpResponse:
    user_id = tenant_id(request)
    usage = ledger.read_usage(user_id)
    with as_tenant(user_id):
        stored = Document.objects.filter(user_id=user_id, stored_at__isnull=False)
        totals = stored.aggregate(
            documents=Count("pk"), pages=Sum("pages", default=0), bytes=Sum("bytes_len", default=0)
        )
    budget, left = usage["budget_cents_per_day"], usage["left_today_cents"]
    context = {
        "stored": totals,
        "searches": rate_limit.count_searches(user_id),
        "today": format_money(float(usage["today"]["cents"])),
        "month": format_money(float(usage["month"]["cents"])),
        "budget": budget and format_money(float(budget)),
        "left": None if left is None else format_money(float(left)),
        "unsettled": usage["month"]["unsettled_cents"],
        "bought": [
            each | {"money": format_money(float(each["settled_cents"] + each["unsettled_cents"]))}
            for each in usage["bought_this_month"]
        ],
        "days": [
            (each["day"], format_money(float(each["cents"]))) for each in ledger.read_daily_spending(user_id, DAYS)
        ],
    }
    return render(request, "portal/settings/usage.html", context)
