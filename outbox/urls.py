from django.urls import path

from outbox.webhooks import views

urlpatterns = [
    path("webhook-endpoints", views.WebhookEndpointsView.as_view()),
    path("webhook-endpoints/<uuid:endpoint_id>", views.WebhookEndpointView.as_view()),
    path("webhook-endpoints/<uuid:endpoint_id>/rotate", views.RotateSecretView.as_view()),
    path("webhook-endpoints/<uuid:endpoint_id>/deliveries", views.DeliveriesView.as_view()),
    path("webhook-endpoints/<uuid:endpoint_id>/deliveries/<uuid:delivery_id>/resend", views.ResendView.as_view()),
]
