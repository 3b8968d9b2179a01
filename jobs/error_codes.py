"""Error codes of jobs: what a job waits for or fails with for reasons of the queue, and errors of its API."""

from django.utils.translation import gettext_lazy as _

from accounts.errors import Context, ErrorCode, failure, staff_error, wait_reason

OUR_FAULT = _("Something went wrong on our side. Try again; if it fails once more, ask our staff.")
OUR_CONFIGURATION = _("Something is set up wrongly on our side. Our staff must correct it first.")
RETRY_ONCE = _("Retry once. If it fails again, look up the job's log lines by its correlation id and tell a developer.")
RUN_DOCTOR = _("Run `manage.py doctor`: it names the setting. Jobs continue by themselves.")

CONFIGURATION = wait_reason("CONFIGURATION", OUR_CONFIGURATION, _("A setting is wrong."), RUN_DOCTOR)
STORAGE_UNAVAILABLE = wait_reason(
    "STORAGE_UNAVAILABLE",
    _("Our file store is out of order. Your document continues by itself when it is back."),
    _("The file store or the disk is full or cannot be reached."),
    RUN_DOCTOR,
    status=503,
)
STORAGE_UNAVAILABLE.explain(Context.REQUEST, tenant_message=_("Our file store cannot be reached."))
STOPPING = wait_reason(
    "STOPPING",
    _("Our service is being restarted. Your document continues by itself."),
    _("The worker is being stopped."),
    _("Wait: another worker continues."),
    status=503,
)

PAUSED_BY_STAFF = wait_reason(
    "PAUSED_BY_STAFF",
    _("Our staff has paused this. Your document continues by itself."),
    _("Somebody has paused the pipeline, the tenant or the vendor: the console's page Pauses says who and why."),
    _("Resume it there."),
)

STAGE_TIMEOUT = failure(
    "STAGE_TIMEOUT",
    _("This took longer than allowed. Try again."),
    _("The stage exceeded its time limit; its process was killed."),
    RETRY_ONCE,
    detail=_("The stage exceeded its time limit."),
)
WORKER_LOST = failure(
    "WORKER_LOST",
    OUR_FAULT,
    _("The worker died with the job on every attempt."),
    _("Look for processes killed for memory on the workers' hosts. Then retry."),
    detail=_("The worker that ran this stage is gone."),
)
BUG = failure(
    "internal",
    OUR_FAULT,
    _("A bug."),
    _("The traceback on the job's page shows where. Retry once it is fixed."),
    detail=_("Something went wrong on our side; it will be tried again."),
)
CANCELLED = failure(
    "CANCELLED",
    _("Somebody stopped the work on this document. Try again if you still want it."),
    _("Somebody cancelled the job."),
    _("Nothing to do; it can be retried from its page."),
)
SUPERSEDED = failure(
    "SUPERSEDED",
    _("A newer job of this document replaced this one."),
    _("A campaign's job that was replaced by the tenant's own."),
    _("Nothing to do."),
)
MOVED_BY_STAFF = failure(
    "MOVED_BY_STAFF",
    _("Our staff stopped the work on this document to look into it."),
    _("Support stopped the job; the audit log has who and why."),
    _("Retry after the investigation."),
    detail=_("Support has stopped this job to look into it."),
)

LOOK_AGAIN = _("Reload the page.")
JOB_ALREADY_ACTIVE = ErrorCode(
    "JOB_ALREADY_ACTIVE",
    _("This document is being worked on already."),
    _("Another request started a job of the document first."),
    LOOK_AGAIN,
    status=409,
    detail=_("This document has an active job; wait until it has ended."),
)
JOB_STATE_CHANGED = ErrorCode(
    "JOB_STATE_CHANGED",
    _("Something has changed meanwhile. Reload the page."),
    _("The job has changed since it was read."),
    LOOK_AGAIN,
    status=409,
    detail=_("The job has changed meanwhile; read it again."),
)
JOB_DONE = ErrorCode(
    "JOB_DONE",
    _("This document is ready; there is nothing to try again."),
    _("The job is done."),
    LOOK_AGAIN,
    status=409,
)
JOB_LET_GO = staff_error(
    "JOB_LET_GO",
    _("A campaign gave the job up, because it ended or because the tenant's own job came first."),
    _("Start another campaign."),
    status=409,
)
JOB_NOT_WAITING = ErrorCode(
    "JOB_NOT_WAITING", status=409, detail=_("Only a waiting job that has a next stage can be advanced.")
)
INVARIANT_VIOLATED = ErrorCode("INVARIANT_VIOLATED", status=409)
PAUSE_UNKNOWN = staff_error(
    "PAUSE_UNKNOWN", _("There is no such pipeline, tenant or vendor."), _("Choose another one."), status=404
)
ALREADY_PAUSED = staff_error(
    "ALREADY_PAUSED", _("Somebody has paused it already."), _("See the page Pauses."), status=409
)
STAGE_UNKNOWN = staff_error("STAGE_UNKNOWN", _("The job's pipeline has no such stage."), _("Choose another stage."))
STAGE_NOT_REACHED = staff_error(
    "STAGE_NOT_REACHED", _("The job has not reached the stage."), _("Choose an earlier stage."), status=409
)
PIPELINE_UNKNOWN = staff_error(
    "PIPELINE_UNKNOWN", _("The job's pipeline is not deployed here."), _("Deploy the pipeline."), status=409
)

# The codes of the API's operations.
RETRY = (JOB_ALREADY_ACTIVE, JOB_DONE, JOB_STATE_CHANGED, PIPELINE_UNKNOWN)
ADVANCE = (JOB_NOT_WAITING, INVARIANT_VIOLATED, JOB_STATE_CHANGED, JOB_ALREADY_ACTIVE)
