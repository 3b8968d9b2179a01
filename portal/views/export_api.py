"""API view of the export of all that a tenant has stored."""

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.authentication import caller_id
from accounts.common_error_codes import ACCOUNT_REQUIRED
from accounts.errors import ApiError, raises
from accounts.models import ApiToken, User
from accounts.rate_limit import LOOK_LIMIT_REACHED
from documents.views import IgnoreAcceptHeader
from portal.account_export import export_response


class ExportView(APIView):
    change_scope = ApiToken.Scope.EXPORT  # it holds questions, judgements and records that `read` does not promise
    content_negotiation_class = IgnoreAcceptHeader

    @extend_schema(
        operation_id="export_data",
        request=None,
        responses={(200, "application/zip"): OpenApiTypes.BINARY},
        extensions=raises(ACCOUNT_REQUIRED, LOOK_LIMIT_REACHED),
    )
    def post(self, request: Request) -> StreamingHttpResponse:
        """Download everything that the caller has stored as one ZIP file, five times a day."""
        user = User.objects.filter(pk=caller_id(request)).first()
        if user is None:
            raise ApiError(ACCOUNT_REQUIRED)
        return export_response(user)
