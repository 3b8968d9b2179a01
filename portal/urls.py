"""URLs of tenants' pages."""

from django.contrib.auth.views import LogoutView
from django.templatetags.static import static
from django.urls import path
from django.views.generic import RedirectView

from portal import language
from portal.views import (
    account,
    documents,
    email_links,
    first_account,
    integrations,
    library,
    search,
    statutes,
    tokens,
    two_step,
    usage,
    webhooks,
)
from portal.views.sign_in import SignIn

app_name = "portal"
urlpatterns = [
    path("", first_account.home, name="home"),
    path("list", documents.document_list, name="list"),
    path("favicon.ico", RedirectView.as_view(url=static("portal/icon.svg"))),  # browsers ask for it on every page
    path("language", language.switch, name="language"),
    path("sentences/<slug:language>.js", language.script_sentences, name="script-sentences"),
    path("sign-in", SignIn.as_view(), name="sign-in"),
    path("sign-in/code", two_step.code, name="sign-in-code"),
    path("sign-out", LogoutView.as_view(), name="sign-out"),
    path("reset-password", email_links.request_reset, name="password-reset"),
    path("reset-password/<uuid:user_id>/<str:token>", email_links.reset_link, name="password-reset-link"),
    path("sign-up", email_links.sign_up, name="sign-up"),
    path("invitation/<str:signed>", email_links.invitation, name="invitation"),
    path("find", search.search_page, name="search"),
    path("find/feedback", search.answer_feedback, name="answer-feedback"),
    path("find/<uuid:question_id>", search.saved_question, name="question"),
    path("find/<uuid:question_id>/forget", search.forget_question, name="forget-question"),
    path("library/duplicate", library.find_duplicate, name="duplicate"),
    path("library/bulk", library.bulk, name="bulk"),
    path("library/tags", library.tag_list, name="tags"),
    path("library/tags/<uuid:tag_id>", library.tag, name="tag"),
    path("statutes/<uuid:chunk_id>", statutes.statute, name="statute"),
    path("d/<uuid:document_id>/edit", library.edit, name="edit"),
    path("d/<uuid:document_id>", documents.document, name="document"),
    path("d/<uuid:document_id>/status", documents.status, name="status"),
    path("d/<uuid:document_id>/marks", documents.highlights, name="highlights"),
    path("d/<uuid:document_id>/original", documents.original, name="original"),
    path("d/<uuid:document_id>/retry", documents.retry, name="retry"),
    path("d/<uuid:document_id>/delete", documents.delete, name="delete"),
    path("settings/account", account.account, name="account"),
    path("settings/account/password", account.change_password, name="change-password"),
    path("settings/account/sign-out-others", account.sign_out_others, name="sign-out-others"),
    path("settings/account/notify", account.notify, name="notify"),
    path("settings/account/export", account.export, name="export"),
    path("settings/account/delete", account.delete, name="delete-account"),
    path("deleted/<uuid:deletion_id>", account.deletion, name="deletion"),
    path("deleted/<uuid:deletion_id>/certificate.json", account.certificate, name="certificate"),
    path("settings/two-step", two_step.two_step, name="two-step"),
    path("settings/two-step/codes", two_step.replace_codes, name="two-step-codes"),
    path("settings/two-step/off", two_step.turn_off, name="two-step-off"),
    path("settings/usage", usage.usage, name="usage"),
    path("settings/tokens", tokens.tokens, name="tokens"),
    path("settings/tokens/<uuid:token_id>/revoke", tokens.revoke, name="token-revoke"),
    path("settings/webhooks", webhooks.webhooks, name="webhooks"),
    path("settings/webhooks/<uuid:endpoint_id>", webhooks.webhook, name="webhook"),
    path("settings/webhooks/<uuid:endpoint_id>/switch", webhooks.switch, name="webhook-switch"),
    path("settings/webhooks/<uuid:endpoint_id>/rotate", webhooks.rotate, name="webhook-rotate"),
    path("settings/webhooks/<uuid:endpoint_id>/delete", webhooks.delete, name="webhook-delete"),
    path(
        "settings/webhooks/<uuid:endpoint_id>/deliveries/<uuid:delivery_id>/resend",
        webhooks.resend,
        name="webhook-resend",
    ),
    path("settings/integrations", integrations.integrations, name="integrations"),
    path("settings/integrations/list", integrations.source_list, name="integrations-list"),
    path("settings/integrations/<slug:provider>/connect", integrations.connect, name="connect"),
    path("settings/integrations/<slug:provider>/callback", integrations.callback, name="connected"),
    path("settings/integrations/<uuid:source_id>/sync", integrations.sync, name="integration-sync"),
    path("settings/integrations/<uuid:source_id>/disconnect", integrations.disconnect, name="integration-disconnect"),
]
