from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from webhooks.views import LlamaParseView

urlpatterns = [
    # The signature is the permission; no cookie takes part, so there is nothing to forge.
    path("webhooks/llamaparse", csrf_exempt(LlamaParseView.as_view())),
]
