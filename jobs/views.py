"""Views of the job API: poll, list, retry and advance."""

from http import HTTPStatus
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import idempotency_keys, openapi_parameters, rate_limit
from accounts.authentication import caller_id
from accounts.common_error_codes import IDEMPOTENCY_KEY_REUSED, not_found
from accounts.errors import raises
from accounts.idempotency_keys import IdempotentRequest
from accounts.models import ApiToken, User
from accounts.pagination import NewestFirstPagination
from accounts.permissions import has_staff_permission
from accounts.rate_limit import POLL_LIMIT_REACHED
from accounts.rls import as_tenant
from jobs import display_status, error_codes, services, staff_actions
from jobs.choices import ACTIVE
from jobs.models import UploadJob
from jobs.serializers import JobDetailResponse, JobResponse, RetryRequest


def _check_poll(job: UploadJob | None) -> UploadJob:
    """Return the job after counting a poll; raise ``ApiError`` for None or too many polls."""
    if job is None:
        raise not_found()
    rate_limit.check_rate(rate_limit.POLLS, job.pk)
    return job


def _serialize(job: UploadJob) -> dict[str, Any]:
    return dict(JobDetailResponse(job, context=_context(job.user_id, [job])).data)


def _context(user_id: UUID, jobs: list[UploadJob]) -> dict[str, Any]:
    return {
        "running": display_status.count_running(user_id),
        "unsettled_cents": services.sum_unsettled_cents(jobs),
    }


class JobView(APIView):
    @extend_schema(operation_id="job", responses=JobResponse, extensions=raises(POLL_LIMIT_REACHED))
    def get(self, request: Request, job_id: UUID) -> Response:
        """Show one of the caller's jobs."""
        job = services.get_tenant_job(caller_id(request), job_id)
        return Response(JobResponse(_check_poll(job)).data)


class JobsView(APIView):
    pagination_class = NewestFirstPagination

    @extend_schema(
        operation_id="jobs",
        responses=JobDetailResponse(many=True),
        parameters=[OpenApiParameter("active", bool, description="Only jobs that have not ended.")],
    )
    def get(self, request: Request) -> Response:
        """List the caller's jobs, the newest first."""
        user_id = caller_id(request)
        jobs = services.tenant_jobs().filter(user_id=user_id)
        if request.query_params.get("active", "").lower() in ("1", "true", "yes"):
            jobs = jobs.filter(state__in=ACTIVE)
        pages = NewestFirstPagination()
        with as_tenant(user_id):
            page = pages.paginate_queryset(jobs, request, view=self)
            rows = JobDetailResponse(page, many=True, context=_context(user_id, page or [])).data
        return pages.get_paginated_response(rows)


class DocumentJobView(APIView):
    @extend_schema(operation_id="document_job", responses=JobDetailResponse, extensions=raises(POLL_LIMIT_REACHED))
    def get(self, request: Request, document_id: UUID) -> Response:
        """Show the newest job of a document, with its counters."""
        return Response(_serialize(_check_poll(get_own_job(request, document_id))))


class RetryView(APIView):
    @extend_schema(
        operation_id="retry_job",
        request=RetryRequest,
        responses={202: JobDetailResponse},
        parameters=[openapi_parameters.IDEMPOTENCY_KEY],
        extensions=raises(*error_codes.RETRY, IDEMPOTENCY_KEY_REUSED),
    )
    def post(self, request: Request, document_id: UUID) -> Response:
        """Retry a failed job from its latest valid stage.

        Staff with the permission may retry any tenant's job; the audit log keeps the ``reason``.
        """
        is_staff = has_staff_permission(request, staff_actions.PERMISSIONS["retry"])
        job = services.get_latest_job(document_id) if is_staff else get_own_job(request, document_id)
        if job is None:
            raise not_found()
        if job.user_id == caller_id(request):
            moved = services.retry(job, by=str(job.user_id), request=_repeatable(request, document_id=document_id))
        else:
            # The body is optional, so a body that is not JSON is no error.
            retry_request = RetryRequest(data=request.data if "json" in (request.content_type or "") else {})
            retry_request.is_valid(raise_exception=True)
            reason = retry_request.validated_data.get("reason") or "via the API"
            repeatable = _repeatable(request, document_id=document_id, reason=reason)
            staff = User.objects.get(pk=caller_id(request))
            moved = staff_actions.retry(job, by=staff, reason=reason, request=repeatable)
        return Response(_serialize(moved), status=HTTPStatus.ACCEPTED)


class AdvanceView(APIView):
    required_scope = ApiToken.Scope.SERVICE

    @extend_schema(
        operation_id="advance_job",
        request=None,
        responses=JobDetailResponse,
        extensions=raises(*error_codes.ADVANCE),
    )
    def post(self, request: Request, document_id: UUID) -> Response:
        """Move a waiting job to its next stage if the next stage's invariants hold. For the service only."""
        return Response(_serialize(services.advance(services.get_latest_job(document_id), by="service")))


def _repeatable(request: Request, **body: Any) -> IdempotentRequest | None:
    return idempotency_keys.idempotent_request(request, user_id=caller_id(request), route="retry", body=body)


def get_own_job(request: Request, document_id: UUID) -> UploadJob | None:
    """Return the newest job of one of the caller's documents; None for an unknown or another tenant's document."""
    user_id = caller_id(request)
    with as_tenant(user_id):
        return services.newest_job(services.tenant_jobs().filter(document_id=document_id, user_id=user_id))
