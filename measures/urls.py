from django.urls import path

from measures import views

urlpatterns = [path("metrics", views.metrics)]
