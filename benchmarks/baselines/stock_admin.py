"""Baseline for the staff pages: Django's default ModelAdmin of jobs."""

from django.contrib import admin


class JobAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("job_id", "document", "pipeline", "stage", "state", "status", "attempts", "created_at")
    list_filter = ("state", "stage")
    search_fields = ("job_id",)
    ordering = ("-created_at",)
    change_list_template = "admin/change_list.html"
