from django.urls import path

from embeddings import views

urlpatterns = [
    path("documents/<uuid:document_id>/chunks", views.ChunksView.as_view()),
    path("internal/embed", views.EmbedView.as_view()),
]
