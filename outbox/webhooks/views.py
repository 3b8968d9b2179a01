"""API views of webhook endpoints: list, create, change, rotate, delete, deliveries, resend."""

from http import HTTPStatus
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.authentication import caller_id
from accounts.common_error_codes import not_found
from accounts.errors import raises
from accounts.models import ApiToken
from accounts.pagination import NewestFirstPagination
from accounts.rls import as_tenant
from outbox import error_codes
from outbox.models import WebhookEndpoint
from outbox.webhooks import endpoints, serializers
from outbox.webhooks.endpoints import NewSecret


def own_endpoint(request: Request, endpoint_id: UUID) -> WebhookEndpoint:
    return endpoints.get_endpoint(caller_id(request), endpoint_id)


def _secret_response(renewed: NewSecret, status: int) -> Response:
    renewed.endpoint.plain_secret = renewed.secret  # type: ignore[attr-defined]
    body = serializers.WebhookSecretResponse(renewed.endpoint).data
    return Response(body, status=status, headers={"Cache-Control": "no-store"})


class WebhookEndpointsView(APIView):
    change_scope = ApiToken.Scope.WEBHOOKS  # an address that hears what happens outlives the token that made it
    pagination_class = NewestFirstPagination

    @extend_schema(operation_id="webhook_endpoints", responses=serializers.WebhookEndpointResponse(many=True))
    def get(self, request: Request) -> Response:
        """List the caller's webhook endpoints, the newest first."""
        rows = endpoints.tenant_endpoints(caller_id(request))
        return NewestFirstPagination.tenant_page(rows, serializers.WebhookEndpointResponse, view=self)

    @extend_schema(
        operation_id="create_webhook_endpoint",
        request=serializers.WebhookEndpointRequest,
        responses={201: serializers.WebhookSecretResponse},
        extensions=raises(error_codes.WEBHOOK_URL_INVALID, error_codes.WEBHOOK_LIMIT_REACHED),
    )
    def post(self, request: Request) -> Response:
        """Create an endpoint; the response shows its secret this once."""
        body = _validated(serializers.WebhookEndpointRequest, request)
        return _secret_response(endpoints.create_endpoint(user_id=caller_id(request), **body), HTTPStatus.CREATED)


class WebhookEndpointView(APIView):
    change_scope = ApiToken.Scope.WEBHOOKS

    @extend_schema(operation_id="webhook_endpoint", responses=serializers.WebhookEndpointResponse)
    def get(self, request: Request, endpoint_id: UUID) -> Response:
        """Show one endpoint of the caller's."""
        return Response(serializers.WebhookEndpointResponse(own_endpoint(request, endpoint_id)).data)

    @extend_schema(
        operation_id="change_webhook_endpoint",
        request=serializers.WebhookEndpointChanges,
        responses=serializers.WebhookEndpointResponse,
        extensions=raises(error_codes.WEBHOOK_URL_INVALID),
    )
    def patch(self, request: Request, endpoint_id: UUID) -> Response:
        """Change the URL or the events, disable the endpoint or enable it again."""
        endpoint, changes = own_endpoint(request, endpoint_id), _validated(serializers.WebhookEndpointChanges, request)
        changed = endpoints.update_endpoint(endpoint, **changes)
        return Response(serializers.WebhookEndpointResponse(changed).data)

    @extend_schema(operation_id="delete_webhook_endpoint", responses={204: None})
    def delete(self, request: Request, endpoint_id: UUID) -> Response:
        """Delete an endpoint with its deliveries; nothing more is sent to it."""
        endpoints.delete_endpoint(own_endpoint(request, endpoint_id))
        return Response(status=HTTPStatus.NO_CONTENT)


class RotateSecretView(APIView):
    change_scope = ApiToken.Scope.WEBHOOKS

    @extend_schema(operation_id="rotate_webhook_secret", request=None, responses=serializers.WebhookSecretResponse)
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Make a new secret; the one before signs as well for 24 hours."""
        return _secret_response(endpoints.rotate_secret(own_endpoint(request, endpoint_id)), HTTPStatus.OK)


class DeliveriesView(APIView):
    pagination_class = NewestFirstPagination

    @extend_schema(operation_id="webhook_deliveries", responses=serializers.DeliveryResponse(many=True))
    def get(self, request: Request, endpoint_id: UUID) -> Response:
        """List what was sent to an endpoint, or waits to be, the newest first."""
        endpoint = own_endpoint(request, endpoint_id)
        deliveries = endpoints.tenant_deliveries(endpoint.user_id, endpoint.pk)
        return NewestFirstPagination.tenant_page(deliveries, serializers.DeliveryResponse, view=self)


class ResendView(APIView):
    @extend_schema(
        operation_id="resend_webhook",
        request=None,
        responses={202: serializers.DeliveryResponse},
        extensions=raises(error_codes.WEBHOOK_NOT_ENABLED, error_codes.MESSAGE_IN_FLIGHT),
    )
    def post(self, request: Request, endpoint_id: UUID, delivery_id: UUID) -> Response:
        """Send a delivery again, under the same `webhook-id`."""
        user_id = caller_id(request)
        with as_tenant(user_id):
            message = endpoints.tenant_deliveries(user_id, endpoint_id).filter(pk=delivery_id).first()
        if message is None:
            raise not_found()
        return Response(serializers.DeliveryResponse(endpoints.resend(message)).data, status=HTTPStatus.ACCEPTED)


def _validated(serializer_class: Any, request: Request) -> dict[str, Any]:
    serializer = serializer_class(data=request.data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)
