from django.urls import path

from legacy import views

urlpatterns = [path("cutover", views.CutoverView.as_view())]
