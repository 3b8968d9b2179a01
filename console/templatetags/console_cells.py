"""Filters of the console's templates: times, money, durations, ids and names, as in the admin's lists."""

from django import template

from accounts import admin_cells, number_formats

register = template.Library()

register.filter("time", admin_cells.time_cell)
register.filter("short_id", admin_cells.id_cell)


@register.filter
def money(cents: object) -> str:
    return number_formats.format_money(float(cents or 0))  # type: ignore[arg-type]


@register.filter
def tenant(names: admin_cells.Names, pk: object) -> str:
    return admin_cells.named_cell("tenant", pk, names)  # type: ignore[arg-type]


@register.filter
def document(names: admin_cells.Names, pk: object) -> str:
    return admin_cells.named_cell("document", pk, names)  # type: ignore[arg-type]


@register.filter
def copy(pk: object, label: str) -> str:
    return admin_cells.copy_button(pk, label)


@register.filter
def document_name(names: admin_cells.Names, pk: object) -> str:
    return names.find("document", pk) or f"document {str(pk)[:8]}"  # type: ignore[arg-type]
