"""URL configuration."""

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularSwaggerSplitView

from accessa import health
from accessa.openapi.views import SchemaView

admin.autodiscover()

handler400 = "accessa.error_responses.bad_request_page"
handler403 = "accessa.error_responses.forbidden_page"
handler404 = "accessa.error_responses.not_found_page"
handler500 = "accessa.error_responses.server_error_page"

urlpatterns = [
    path("", include("accounts.urls")),
    path("", include("jobs.urls")),
    path("", include("vendors.urls")),
    path("", include("outbox.urls")),
    path("", include("documents.urls")),
    path("", include("embeddings.urls")),
    path("", include("webhooks.urls")),
    path("", include("search.urls")),
    path("", include("legacy.urls")),
    path("", include("metrics.urls")),
    path("healthz", health.alive),
    path("readyz", health.ready),
    path("schema", SchemaView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema", template_name="api/docs.html")),
    path("admin/", include("console.urls")),
    path("admin/", admin.site.urls),
    path("", include("portal.urls")),
]
