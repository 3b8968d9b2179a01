from django.urls import path

from accounts import views

urlpatterns = [
    path("tokens", views.TokensView.as_view()),
    path("tokens/<uuid:token_id>", views.TokenView.as_view()),
]
