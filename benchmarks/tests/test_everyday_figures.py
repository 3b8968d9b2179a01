"""Figures of everyday questions."""

from benchmarks.answers import FirstLine, _everyday_figures


def test_a_collection_without_questions_off_topic_has_figures() -> None:
    right = FirstLine(is_on_topic=True, exact=True, answered=True, refused=False)

    figures = _everyday_figures([right])

    assert (figures["exact_in_first_line"], figures["off_topic"]) == (1.0, 0)
    assert "off_topic_refused" not in figures
