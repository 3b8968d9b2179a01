"""Fidelity scores on texts whose score is known."""

import pytest

from benchmarks.fidelity_scores import has_table, score

PIPES = "# Title\n\nText\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
HTML = "# Title\n\nText\n\n<table><tr> <td>a</td><td>b</td></tr><tr><td> 1 </td><td>2</td></tr></table>\n"


def test_a_pipe_table_equals_the_same_table_in_html() -> None:
    scores = score(HTML, PIPES)

    assert scores.teds == scores.mhs == 1.0
    assert scores.nid > 0.97


def test_a_missing_table_or_heading_scores_nothing() -> None:
    scores = score(HTML, "Title Text a b 1 2")

    assert (scores.teds, scores.mhs) == (0.0, 0.0)


def test_a_truth_without_table_and_heading_has_the_reading_order_only() -> None:
    scores = score("some words", "some words")

    assert (scores.nid, scores.teds, scores.mhs, scores.overall) == (1.0, None, None, 1.0)


@pytest.mark.parametrize(("wrong", "teds"), [("| 1 | 3 |", 1 - 1 / 7), ("| 1 |", 1 - 1 / 7), ("", 1 - 3 / 7)])
def test_each_wrong_cell_costs_its_share_of_the_nodes(wrong: str, teds: float) -> None:
    assert score(PIPES, PIPES.replace("| 1 | 2 |", wrong)).teds == pytest.approx(teds)


def test_heading_levels_are_equal_and_their_order_counts() -> None:
    assert score("# A\n\n# B", "### A\n\n## B").mhs == 1.0
    assert score("# A\n\n# B", "# B\n\n# A").mhs == pytest.approx(1 / 3)


def test_a_line_with_a_pipe_is_no_table() -> None:
    assert not has_table("either | or\nboth | and")
