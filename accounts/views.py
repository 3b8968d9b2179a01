"""API of a user's tokens: list, create, revoke."""

from http import HTTPStatus
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import api_tokens
from accounts.authentication import Caller, caller_id, granted_scopes
from accounts.common_error_codes import ACCOUNT_REQUIRED, TOO_MANY_TOKENS
from accounts.errors import raises
from accounts.models import ApiToken
from accounts.pagination import NewestFirstPagination
from accounts.serializers import NewTokenResponse, TokenRequest, TokenResponse


class TokensView(APIView):
    change_scope = ApiToken.Scope.TOKENS
    pagination_class = NewestFirstPagination

    @extend_schema(operation_id="tokens", responses=TokenResponse(many=True))
    def get(self, request: Request) -> Response:
        """List the caller's tokens that are not revoked, the newest first; never the tokens themselves."""
        tokens = api_tokens.tenant_tokens(caller_id(request))
        return NewestFirstPagination.tenant_page(tokens, TokenResponse, view=self)

    @extend_schema(
        operation_id="create_token",
        request=TokenRequest,
        responses={201: NewTokenResponse},
        extensions=raises(ACCOUNT_REQUIRED, TOO_MANY_TOKENS),
    )
    def post(self, request: Request) -> Response:
        """Create a token, with no more scopes and no longer life than the caller's own token; it is shown this once."""
        serializer = TokenRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        maker = request.user if isinstance(request.user, Caller) else None
        plain, token = api_tokens.issue_own_token(
            caller_id(request),
            **serializer.validated_data,
            granted=granted_scopes(request.user),
            expires_by=maker.expires_at if maker else None,
            made_by=maker.token_id if maker else None,
        )
        headers = {"Cache-Control": "no-store"}
        return Response(TokenResponse(token).data | {"token": plain}, status=HTTPStatus.CREATED, headers=headers)


class TokenView(APIView):
    change_scope = ApiToken.Scope.TOKENS

    @extend_schema(operation_id="revoke_token", responses={204: None})
    def delete(self, request: Request, token_id: UUID) -> Response:
        """Revoke a token of the caller's: the next request with it is refused."""
        api_tokens.revoke_own_token(caller_id(request), token_id)
        return Response(status=HTTPStatus.NO_CONTENT)
