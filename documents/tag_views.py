"""API views of tags: list, create, change, delete."""

from http import HTTPStatus
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.authentication import caller_id
from accounts.errors import raises
from accounts.pagination import NewestFirstPagination
from documents import error_codes, tags
from documents.serializers import TagChanges, TagRequest, TagResponse


class TagsView(APIView):
    pagination_class = NewestFirstPagination

    @extend_schema(operation_id="tags", responses=TagResponse(many=True))
    def get(self, request: Request) -> Response:
        """List the caller's tags, the newest first."""
        return NewestFirstPagination.tenant_page(tags.tenant_tags(caller_id(request)), TagResponse, view=self)

    @extend_schema(
        operation_id="create_tag",
        request=TagRequest,
        responses={200: TagResponse, 201: TagResponse},
        extensions=raises(error_codes.INVALID_TAG_NAME, error_codes.TAG_LIMIT_REACHED),
    )
    def post(self, request: Request) -> Response:
        """Create a tag (201), or return the tag that has this name already, as it is (200)."""
        body = TagRequest(data=request.data)
        body.is_valid(raise_exception=True)
        tag, is_new = tags.create_tag(user_id=caller_id(request), **body.validated_data)
        return Response(TagResponse(tag).data, status=HTTPStatus.CREATED if is_new else HTTPStatus.OK)


class TagView(APIView):
    @extend_schema(operation_id="tag", responses=TagResponse)
    def get(self, request: Request, tag_id: UUID) -> Response:
        """Show one tag of the caller's."""
        return Response(TagResponse(tags.get_tag(caller_id(request), tag_id)).data)

    @extend_schema(
        operation_id="change_tag",
        request=TagChanges,
        responses=TagResponse,
        extensions=raises(error_codes.INVALID_TAG_NAME, error_codes.TAG_NAME_TAKEN),
    )
    def patch(self, request: Request, tag_id: UUID) -> Response:
        """Change the name or the colour of a tag."""
        tag, body = tags.get_tag(caller_id(request), tag_id), TagChanges(data=request.data)
        body.is_valid(raise_exception=True)
        return Response(TagResponse(tags.change_tag(tag, **body.validated_data)).data)

    @extend_schema(operation_id="delete_tag", responses={204: None})
    def delete(self, request: Request, tag_id: UUID) -> Response:
        """Delete a tag; the documents that have it stay."""
        tags.delete_tag(tags.get_tag(caller_id(request), tag_id))
        return Response(status=HTTPStatus.NO_CONTENT)
