"""``/docs``: the schema for people, without inline script or style."""

from __future__ import annotations

from drf_spectacular.views import SpectacularSwaggerSplitView


class DocsView(SpectacularSwaggerSplitView):
    template_name = "api/docs.html"
