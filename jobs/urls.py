from django.urls import path

from jobs import views

urlpatterns = [
    path("job/<uuid:job_id>", views.JobView.as_view()),
    path("jobs", views.JobsView.as_view()),
    path("jobs/<uuid:document_id>", views.DocumentJobView.as_view()),
    path("jobs/<uuid:document_id>/retry", views.RetryView.as_view()),
    path("jobs/<uuid:document_id>/advance", views.AdvanceView.as_view()),
]
