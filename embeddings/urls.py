from django.urls import path

from embeddings import internal_embed_api, views

urlpatterns = [
    path("documents/<uuid:document_id>/chunks", views.ChunksView.as_view()),
    path("internal/embed", internal_embed_api.EmbedView.as_view()),
]
