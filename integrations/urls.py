from django.urls import path

from integrations import views

urlpatterns = [
    path("search", views.SearchView.as_view()),
]
