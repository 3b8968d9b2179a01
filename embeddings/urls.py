from django.urls import path

from embeddings import chunk_views, document_views, internal_embed_api

urlpatterns = [
    path("documents/<uuid:document_id>", document_views.DocumentView.as_view()),
    path("documents/<uuid:document_id>/chunks", chunk_views.ChunksView.as_view()),
    path("internal/embed", internal_embed_api.EmbedView.as_view()),
]
