from django.urls import path

from search import views
from search.answers.views import AnswerView

urlpatterns = [path("search", views.SearchView.as_view()), path("answer", AnswerView.as_view())]
