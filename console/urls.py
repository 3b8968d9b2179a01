"""Staff's own pages, below the admin's address."""

from django.urls import URLPattern

app_name = "console"
urlpatterns: list[URLPattern] = []
