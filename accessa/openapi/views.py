"""View of the OpenAPI schema."""

from functools import cache
from typing import Any

from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request


class SchemaView(SpectacularAPIView):
    """The schema, generated once for everybody: that takes half a second, and anybody may ask for it."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        renderer: Any = type(request.accepted_renderer)
        headers = {"Content-Disposition": f'inline; filename="accessa.{renderer.format}"'}
        return HttpResponse(render_schema(renderer), content_type=renderer.media_type, headers=headers)


@cache
def render_schema(renderer: Any) -> bytes:
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    content: bytes = renderer().render(schema, renderer_context={})
    return content
