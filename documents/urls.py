from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from documents import tag_views, views
from documents.storage.signed_url_views import SignedUrlView

urlpatterns = [
    path("upload", views.UploadView.as_view()),
    path("documents", views.DocumentsView.as_view()),
    path("documents/<uuid:document_id>/original", views.OriginalView.as_view()),
    path("documents/<uuid:document_id>/parsed", views.ParsedView.as_view()),
    path("documents/<uuid:document_id>/pages/<int:page>", views.PageImageView.as_view()),
    path("documents/<uuid:document_id>/thumbnail", views.ThumbnailView.as_view()),
    path("tags", tag_views.TagsView.as_view()),
    path("tags/<uuid:tag_id>", tag_views.TagView.as_view()),
    # The signature in the URL is the permission; no cookie is used, so no request can be forged.
    path("storage/<slug:bucket>/<path:name>", csrf_exempt(SignedUrlView.as_view())),
]
