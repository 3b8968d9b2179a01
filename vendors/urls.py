from django.urls import path

from vendors import views

urlpatterns = [
    path("usage", views.UsageView.as_view()),
    path("documents/<uuid:document_id>/purchases", views.PurchasesView.as_view()),
]
