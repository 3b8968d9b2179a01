from django.urls import path

from statutes import views

urlpatterns = [
    path("search", views.SearchView.as_view()),
]
