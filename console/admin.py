"""The clusters of workers that are up, in the admin, and not the broker's own rows: the job is the truth."""

from django.contrib import admin
from django_q.admin import Failure, Schedule, Success

from accounts.admin_base import ReadOnlyAdmin
from jobs.models import Cluster


@admin.register(Cluster)
class ClusterAdmin(ReadOnlyAdmin):
    list_display = ("name", "workers", "started_at", "seen_at", "clock_ahead")
    fields = (("name", "workers"), ("started_at", "seen_at"), "clock_ahead")
    id_fields = ("name",)
    ordering = ("name",)


admin.site.unregister([Failure, Schedule, Success])
