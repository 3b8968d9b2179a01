"""Tags: the API, its limits, lists and searches by tag; and renamed documents."""

from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from documents import tags
from documents.models import Document, DocumentTag, Tag
from testing.concurrency import run_concurrently
from testing.factories import DocumentFactory
from testing.factories.searchable_documents import create_searchable_document
from testing.personas import Person
from vendors.models import Purchase


def make_tag(person: Person, name: str = "2026", color: str = "blue") -> Tag:
    return tags.create_tag(user_id=person.id, name=name, color=color)[0]


def tagged(person: Person, document: Document) -> list[str]:
    listed = person.get(f"/documents/{document.pk}").json()["tags"]
    return [each["name"] for each in listed]


def test_a_tag_is_created_once_by_name_without_regard_to_case(ana: Person, ben: Person) -> None:
    first = ana.post("/tags", {"name": " Dad's \u200bplan ", "color": "teal"})
    again = ana.post("/tags", {"name": "dad's PLAN", "color": "red"})
    of_ben = ben.post("/tags", {"name": "Dad's plan"})

    assert [first.status_code, again.status_code, of_ben.status_code] == [201, 200, 201]
    assert (first.json()["name"], first.json()["color"]) == ("Dad's plan", "teal")
    assert again.json() == first.json()
    assert of_ben.json()["tag_id"] != first.json()["tag_id"]


@pytest.mark.parametrize("name", ["", "  ", "\u200b\u202e", "\n", "x" * 41, "\0"])
def test_a_name_without_letters_or_too_long_is_refused(name: str, ana: Person) -> None:
    tag = make_tag(ana)

    for answer in (ana.post("/tags", {"name": name}), ana.patch(f"/tags/{tag.pk}", {"name": name})):
        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (400, "INVALID_TAG_NAME", "name")


def test_a_tag_takes_another_name_and_colour_but_no_taken_name(ana: Person) -> None:
    tag = make_tag(ana)
    make_tag(ana, "dental")

    renamed = ana.patch(f"/tags/{tag.pk}", {"name": "Plan 2026", "color": "pink"})
    taken = ana.patch(f"/tags/{tag.pk}", {"name": "DENTAL"})
    same = ana.patch(f"/tags/{tag.pk}", {"name": "plan 2026"})

    assert (renamed.json()["name"], renamed.json()["color"]) == ("Plan 2026", "pink")
    assert (taken.status_code, taken.json()["code"]) == (409, "TAG_NAME_TAKEN")
    assert same.json()["name"] == "plan 2026"
    assert ana.patch(f"/tags/{tag.pk}", {"color": "url(x)"}).json()["code"] == "INVALID_REQUEST"


def test_tags_are_limited_in_number(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags, "MAX_TAGS", 2)
    monkeypatch.setattr(tags, "MAX_DOCUMENT_TAGS", 1)
    one, two = make_tag(ana, "one"), make_tag(ana, "two")
    document = DocumentFactory.create(user_id=ana.id)

    third = ana.post("/tags", {"name": "three"})
    both = ana.patch(f"/documents/{document.pk}", {"tags": [str(one.pk), str(two.pk)], "filename": "new.pdf"})

    assert (third.status_code, third.json()["code"]) == (409, "TAG_LIMIT_REACHED")
    assert (both.status_code, both.json()["code"]) == (409, "TOO_MANY_TAGS")
    assert (tagged(ana, document), Document.objects.get().filename) == ([], "plan.pdf")  # neither, not one of both


def test_a_documents_tags_are_replaced_and_end_with_tag_or_document(ana: Person) -> None:
    document = DocumentFactory.create(user_id=ana.id)
    one, two = make_tag(ana, "one"), make_tag(ana, "Two")

    answer = ana.patch(f"/documents/{document.pk}", {"tags": [str(two.pk), str(one.pk), str(one.pk)]})
    assert [each["name"] for each in answer.json()["tags"]] == ["one", "Two"]
    ana.patch(f"/documents/{document.pk}", {"tags": [str(two.pk)]})
    assert tagged(ana, document) == ["Two"]
    assert ana.delete(f"/tags/{two.pk}").status_code == 204
    assert tagged(ana, document) == []
    tags.add_tags(document, [one.pk])
    assert ana.delete(f"/documents/{document.pk}").status_code == 204

    assert (DocumentTag.objects.count(), [tag.name for tag in tags.list_tags(ana.id)]) == (0, ["one"])


def test_another_tenants_tag_is_unknown(ana: Person, ben: Person) -> None:
    document, foreign = DocumentFactory.create(user_id=ana.id), make_tag(ben)

    for tag_id in (foreign.pk, uuid4()):
        answer = ana.patch(f"/documents/{document.pk}", {"tags": [str(tag_id)]})
        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (400, "UNKNOWN_TAG", "tags")
    tags.add_tags(document, [foreign.pk])  # as of a bulk action's form

    assert not DocumentTag.objects.exists()


def test_lists_and_searches_are_of_documents_with_any_of_the_tags(ana: Person) -> None:
    ids = [create_searchable_document(ana.id, [f"Dental care in {year}."], filename=f"{year}.pdf") for year in "abc"]
    one, two = make_tag(ana, "one"), make_tag(ana, "two")
    for document_id, given in zip(ids, ([one], [one, two], []), strict=True):
        tags.set_tags(Document.objects.get(pk=document_id), [tag.pk for tag in given])

    def listed(*chosen: Tag) -> set[str]:
        answer = ana.get("/documents", tag=[str(tag.pk) for tag in chosen])
        return {document["filename"] for document in answer.json()["results"]}

    def found(path: str, field: str, *chosen: Tag) -> Any:
        return ana.post(path, {field: "dental care", "filters": {"tags": [str(tag.pk) for tag in chosen]}}).json()

    assert listed() == {"a.pdf", "b.pdf", "c.pdf"}
    assert (listed(one), listed(two), listed(one, two)) == ({"a.pdf", "b.pdf"}, {"b.pdf"}, {"a.pdf", "b.pdf"})
    assert {each["filename"] for each in found("/search", "query", one, two)["passages"]} == {"a.pdf", "b.pdf"}
    cited = found("/answer", "question", two)["sentences"][0]["citations"]
    assert {each["title"] for each in cited} == {"b.pdf"}
    assert ana.get("/documents", tag="x").json()["code"] == "INVALID_REQUEST"


def test_a_renamed_document_is_found_by_its_new_name_and_buys_nothing(ana: Person) -> None:
    ids = [create_searchable_document(ana.id, [f"Care is paid for. {n}"], filename=f"scan{n}.pdf") for n in range(3)]
    ana.patch(f"/documents/{ids[1]}", {"filename": "../Evergreen\u202e rider.pdf"})

    (first, *_) = ana.post("/search", {"query": "evergreen care", "mode": "text"}).json()["passages"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM document_terms WHERE document_id = %s AND term LIKE '%%scan%%'", [ids[1]])
        assert cursor.fetchone() == (0,)

    assert (first["document_id"], first["filename"]) == (str(ids[1]), "Evergreen rider.pdf")
    assert not Purchase.objects.exists()


@pytest.mark.parametrize(
    ("name", "code"), [("", "INVALID_FILENAME"), ("a/", "INVALID_FILENAME"), ("x" * 121, "FILENAME_TOO_LONG")]
)
def test_an_unusable_new_name_is_refused(name: str, code: str, ana: Person) -> None:
    document = DocumentFactory.create(user_id=ana.id)

    answer = ana.patch(f"/documents/{document.pk}", {"filename": name})

    assert (answer.status_code, answer.json()["code"]) == (400, code)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_renames_tags_and_a_deletion_at_once_end_without_an_error(ana: Person) -> None:
    document_id = create_searchable_document(ana.id, ["Care is paid for."])
    tag, path = make_tag(ana), f"/documents/{document_id}"

    answers = run_concurrently(
        lambda: ana.patch(path, {"filename": "one.pdf", "tags": [str(tag.pk)]}),
        lambda: ana.patch(path, {"filename": "two.pdf"}),
        lambda: ana.delete(f"/tags/{tag.pk}"),
        lambda: ana.post("/tags", {"name": "new"}),
        lambda: ana.post("/tags", {"name": "NEW"}),
        lambda: ana.delete(path),
    )

    assert {answer.status_code for answer in answers} <= {200, 201, 204, 400, 404}
    assert not DocumentTag.objects.exists()
    assert Tag.objects.filter(key="new").count() == 1
