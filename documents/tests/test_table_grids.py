"""Tables built from words and ruling lines."""

from types import SimpleNamespace

import pytest

from documents.parsers import liteparse_pages
from documents.parsers.continued_tables import join_cut_rows
from documents.parsers.liteparse_pages import Block, find_tables
from documents.parsers.table_checks import is_table
from documents.parsers.table_grids import Box, DownwardWord, Table, UpwardWord, Word, join_wrapped

WIDTH = 5.0  # of a letter
HEIGHT = 10.0


def words(x: float, y: float, text: str) -> list[Word]:
    """Set a line of text."""
    placed = []
    for word in text.split():
        placed.append(Word(word, Box(x, y, x + WIDTH * len(word), y + HEIGHT)))
        x += WIDTH * (len(word) + 0.6)
    return placed


def lines(rows: list[list[str]], *, xs: list[float], leading: float, top: float = 100.0) -> list[Word]:
    return [
        word
        for n, row in enumerate(rows)
        for x, text in zip(xs, row, strict=True)
        for word in words(x, top + n * leading, text)
    ]


def grid(xs: list[float], ys: list[float]) -> list[Box]:
    across = [Box(xs[0], y, xs[-1], y) for y in ys]
    return across + [Box(x, ys[0], x, ys[-1]) for x in xs]


def rows_of(tables: list[Table]) -> list[list[str]]:
    (table,) = tables
    return table.rows


def test_a_ruled_cell_keeps_its_wrapped_lines_and_empty_cells_their_place() -> None:
    text = [
        *words(55, 52, "Service"),
        *words(155, 52, "You pay"),
        *words(55, 72, "Specialist"),
        *words(55, 83, "visit"),
    ]

    rows = rows_of(find_tables([*text, *words(155, 112, "$60")], grid([50, 150, 250], [50, 70, 100, 130])))

    assert rows == [["Service", "You pay"], ["Specialist visit", ""], ["", "$60"]]


def test_a_cell_that_spans_is_repeated() -> None:
    rules = [rule for rule in grid([50, 150, 250], [50, 70, 90, 110]) if rule.x0 != 150 or rule.x1 != 150]
    rules += [Box(150, 70, 150, 110)]  # below the first row only
    rules = [rule for rule in rules if rule.y0 != 90 or rule.y1 != 90] + [Box(150, 90, 250, 90)]
    text = [*words(100, 55, "In network"), *words(55, 85, "Visit"), *words(155, 75, "$60"), *words(155, 95, "$80")]

    assert rows_of(find_tables(text, rules)) == [["In network", ""], ["Visit", "$60"], ["Visit", "$80"]]


def test_the_last_row_of_a_grid_that_is_open_below_is_kept() -> None:
    rules = [rule for rule in grid([50, 150, 250], [50, 70, 90]) if rule.y0 != 90 or rule.x0 == rule.x1]
    text = lines([["Service", "Copay"], ["Visit", "$60"]], xs=[55, 155], leading=20, top=55)

    assert rows_of(find_tables(text, rules)) == [["Service", "Copay"], ["Visit", "$60"]]


def test_a_framed_text_is_no_table() -> None:
    text = [
        word for n in range(20) for word in words(55, 55 + 12 * n, "These are the words of a long notice in a frame")
    ]

    assert find_tables(text, grid([50, 150, 500], [50, 300, 310])) == []


def test_columns_of_aligned_words_are_a_table() -> None:
    rows = [["Service", "In network", "Out of network"], ["Visit", "$60", "40 %"], ["Scan", "$90", "50 %"]]

    assert rows_of(find_tables(lines(rows, xs=[50, 150, 250], leading=12), [])) == rows


def test_lines_of_a_row_stand_closer_than_rows() -> None:
    text = [
        *lines([["Service", "What you pay"], ["Specialist", "$60 for each"]], xs=[50, 200], leading=18),
        *lines([["visit", "of the visits"]], xs=[50, 200], leading=18, top=129),
        *lines([["Scan", "$90 at most"]], xs=[50, 200], leading=18, top=147),
    ]

    assert rows_of(find_tables(text, [])) == [
        ["Service", "What you pay"],
        ["Specialist visit", "$60 for each of the visits"],
        ["Scan", "$90 at most"],
    ]


@pytest.mark.parametrize("leading", [12, 18])
def test_text_in_two_columns_is_no_table(leading: int) -> None:
    left = [
        "The plan pays for what the",
        "doctor does in the hospital",
        "and for the days that you",
        "spend there as a patient.",
    ]
    right = [
        "You pay the deductible in",
        "each year before the plan",
        "pays the first of its part",
        "of the bills that you get.",
    ]

    assert find_tables(lines([*map(list, zip(left, right, strict=True))], xs=[50, 300], leading=leading), []) == []


@pytest.mark.parametrize(
    "rows",
    [
        [["1.", "Call the plan"], ["2.", "Send the bill"], ["3.", "Keep a copy"]],
        [["•", "Call the plan"], ["•", "Send the bill"], ["•", "Keep a copy"]],
        [["What is covered", "3"], ["What is excluded", "7"], ["How to appeal", "12"], ["Definitions", "15"]],
        [["Covered .......", "3"], ["Excluded .......", "9"], ["Appeal .......", "2"], ["Words .......", "1"]],
    ],
    ids=["numbered list", "bulleted list", "page numbers", "dot leaders"],
)
def test_lists_and_contents_are_no_tables(rows: list[list[str]]) -> None:
    assert find_tables(lines(rows, xs=[50, 200], leading=12), []) == []


HEAD = ["Kind", "You pay"]


@pytest.mark.parametrize(
    ("rows", "joined"),
    [
        ([["Fire", "£150"], ["Glass, replaced by our", "£95"], ["repairer", ""]],
         [["Fire", "£150"], ["Glass, replaced by our repairer", "£95"]]),
        ([["Tests", "20 % after"], ["", "the deductible"]], [["Tests", "20 % after the deductible"]]),
        ([["Fire", "£5"], ["", ""], ["Theft", "£9"]], [["Fire", "£5"], ["", ""], ["Theft", "£9"]]),
        ([["annual", "£5"], ["monthly", ""]], [["annual", "£5"], ["monthly", ""]]),
        ([["continued from above", ""], ["Fire", "£5"]], [["continued from above", ""], ["Fire", "£5"]]),
        ([["Fire", "£5"], ["each year", "at most"]], [["Fire", "£5"], ["each year", "at most"]]),
    ],
)  # fmt: skip
def test_a_wrapped_row_is_joined_and_a_row_in_lower_case_is_not(rows: list[list[str]], joined: list[list[str]]) -> None:
    assert join_wrapped([HEAD, *rows]) == [HEAD, *joined]


def test_a_heading_ends_a_table_without_lines() -> None:
    above = lines([["Age", "Rate", "Smoker"], ["20", "$5", "$7"], ["30", "$6", "$8"]], xs=[50, 150, 250], leading=12)
    heading = words(50, 140, "Amounts")
    below = lines(
        [["Child of six to ten years", "$2"], ["Spouse", "$5"], ["You", "$9"]], xs=[50, 190], leading=12, top=156
    )

    tables = find_tables([*above, *heading, *below], [], [Box(50, 140, 90, 150)])

    assert [len(table.rows) for table in tables] == [3, 3]
    assert tables[1].rows[0] == ["Child of six to ten years", "$2"]


def test_a_page_without_words_and_a_heading_beside_a_table_break_nothing() -> None:
    rows = [["Age", "Rate"], ["20", "$5"], ["30", "$6"]]

    assert find_tables([], [], [Box(0, 0, 10, 10)]) == []
    assert rows_of(find_tables(lines(rows, xs=[50, 150], leading=12), [], [Box(50, 100, 65, 110)])) == rows


XS = [50.0, 150.0, 220.0, 290.0, 360.0]
RATES = [["Under 30", "$51", "$74", "$56", "$83"], ["30 to 34", "$63", "$91", "$67", "$99"], ["35 to 39", *["$78"] * 4]]


@pytest.mark.parametrize("heads", [(150.0, 290.0), (185.0, 325.0)], ids=["left", "centered"])
def test_a_head_over_several_columns_stands_in_each(heads: tuple[float, float]) -> None:
    top = [*words(50, 100, "Age"), *words(heads[0], 100, "Member"), *words(heads[1], 100, "Spouse")]
    below = lines([["", "Others", "Smoker", "Others", "Smoker"], *RATES], xs=XS, leading=12, top=112)

    rows = rows_of(find_tables([*top, *below], []))

    assert rows == [["Age", "Member Others", "Member Smoker", "Spouse Others", "Spouse Smoker"], *RATES]


@pytest.mark.parametrize("leading", [12, 18])
@pytest.mark.parametrize("stub", ["above", "below"])
def test_two_lines_of_a_head_are_joined_however_far_apart(stub: str, leading: int) -> None:
    above, below = ("Age", "") if stub == "above" else ("", "Age")
    top = [*words(50, 100, above), *words(185, 100, "Member"), *words(325, 100, "Spouse")]
    rest = lines([[below, "Others", "Smoker", "Others", "Smoker"], *RATES], xs=XS, leading=leading, top=100 + leading)

    rows = rows_of(find_tables([*top, *rest], []))

    assert rows == [["Age", "Member Others", "Member Smoker", "Spouse Others", "Spouse Smoker"], *RATES]


@pytest.mark.parametrize("stub", [100.0, 110.0], ids=["above", "in the middle"])
def test_a_head_may_wrap_below_heads_over_several_columns(stub: float) -> None:
    top = [*words(50, stub, "Age"), *words(185, 100, "Member"), *words(325, 100, "Spouse")]
    head = lines([["", *["No"] * 4], ["", *["tobacco"] * 4]], xs=XS, leading=12, top=120)
    rates = lines(RATES, xs=XS, leading=20, top=152)

    rows = rows_of(find_tables([*top, *head, *rates], []))

    assert rows == [["Age", *["Member No tobacco"] * 2, *["Spouse No tobacco"] * 2], *RATES]


def test_rows_may_stand_little_further_apart_than_the_lines_of_a_cell() -> None:
    rows = [["Benefit", "What is covered"], *([name, "A treatment that a doctor orders"] for name in ("Lab", "Scan"))]
    text = [
        word
        for n, (name, cover) in enumerate(rows)
        for word in (
            *words(50, 100 + 23 * n, name),
            *words(150, 100 + 23 * n, cover),
            *words(50, 110.2 + 23 * n, "services" if n else "type"),
            *words(150, 110.2 + 23 * n, "and reviews in a month" if n else "by the plan"),
        )
    ]

    assert rows_of(find_tables(text, [])) == [
        ["Benefit type", "What is covered by the plan"],
        ["Lab services", "A treatment that a doctor orders and reviews in a month"],
        ["Scan services", "A treatment that a doctor orders and reviews in a month"],
    ]


def test_a_table_in_a_column_of_text_ends_at_the_column() -> None:
    rows = [["Tier", "Retail", "Mail"], ["Generic", "$8", "$16"], ["Brand", "$47", ""], ["Insulin", "$35", "$105"]]
    prose = [
        "Ask your doctor whether a drug in",
        "a lower tier can be right for you",
        "and look it up in our list of them",
    ]
    left = [
        *lines([[line] for line in prose], xs=[50], leading=12),
        *lines(rows, xs=[50, 120, 190], leading=12, top=136),
    ]
    right = lines([[line] for line in prose * 3], xs=[300], leading=12)

    assert rows_of(find_tables([*left, *right], [])) == rows


@pytest.mark.parametrize("heads", [["Age", "Rate"] * 2, ["Age", "Rate", "Term", "Price"]], ids=["same", "others"])
def test_a_list_that_goes_on_beside_itself_is_two_tables(heads: list[str]) -> None:
    rows = [heads, ["20", "$5", "40", "$9"], ["30", "$7", "50", "$12"], ["35", "$8", "", ""]]

    found = [table.rows for table in find_tables(lines(rows, xs=[50, 150, 250, 350], leading=12), [])]

    left, right = [row[:2] for row in rows], [row[2:] for row in rows[:3]]
    assert found == ([left, right] if heads[:2] == heads[2:] else [rows])


def test_the_wrapped_head_of_a_column_is_no_heading() -> None:
    text = lines([["Cover", "Third party,"], ["", "fire and theft"]], xs=[50, 150], leading=12)
    rows = [["Glass", "$3"], ["Medical", "$4"], ["Legal", "No cover"]]

    found = find_tables([*text, *lines(rows, xs=[50, 150], leading=18, top=130)], [], [Box(150, 100, 220, 122)])

    assert rows_of(found) == [["Cover", "Third party, fire and theft"], *rows]


def test_a_raised_number_belongs_to_the_line_that_it_touches() -> None:
    rows = [["Cover", "Limit"], ["Medical", "$4"], ["Legal", "No cover"]]
    raised = Word("1", Box(176, 99, 178, 105))
    note = [Word("1", Box(50, 134, 52, 140)), *words(54, 135, "For each person and journey")]

    (table,) = find_tables([*lines(rows, xs=[50, 150], leading=12), raised, *note], [])

    assert table.rows == [["Cover", "Limit 1"], *rows[1:]]
    assert table.box.y1 < 135


@pytest.mark.parametrize(
    ("top", "second"),
    [
        ([(50, "Age"), (165, "Member"), (290, "Spouse")], ["", "Others", "Smoker", "Others", "Smoker"]),  # neither
        ([(50, "Age"), (150, "Member"), (290, "Spouse")], ["", "Others", "Smoker", "Others", ""]),
        ([(50, "Age"), (150, "A"), (220, "B"), (290, "C"), (360, "D")], ["", "first", "second", "third", "fourth"]),
    ],
)
def test_heads_of_other_shapes_stand_once(top: list[tuple[float, str]], second: list[str]) -> None:
    first = [word for x, text in top for word in words(x, 100, text)]

    rows = rows_of(find_tables([*first, *lines([second, *RATES], xs=XS, leading=12, top=112)], []))

    assert rows[1:] == RATES
    assert sum(cell.count("Member") for cell in rows[0]) <= 1


def test_heads_that_nearly_touch_are_parted_where_cells_begin_below() -> None:
    head = [*words(50, 100, "Section"), *words(150, 100, "Comprehensive"), *words(221, 100, "Third party")]
    rows = [["Property", "$20", "$5"], ["Glass", "$3", "$1"], ["Medical", "$4", "No cover"]]

    found = rows_of(find_tables([*head, *lines(rows, xs=[50, 150, 221], leading=12, top=112)], []))

    assert found == [["Section", "Comprehensive", "Third party"], *rows]
    assert find_tables(head, []) == []


@pytest.mark.parametrize("below", [[], [["One", ""]], [["", "Two"]], [["One", ""], ["", "Two"], ["One", ""]]])
def test_a_head_above_rows_of_one_cell_breaks_nothing(below: list[list[str]]) -> None:
    head = [*words(50, 100, "Age"), *words(185, 100, "Member"), *words(325, 100, "Spouse")]

    assert find_tables([*head, *lines(below, xs=[50, 150], leading=12, top=112)], []) == []


HEADER = [["Service", "In network", "In network"], ["", "Copay", "Share"]]
WIDE, NARROW = ((50.0, 150.0), (160.0, 220.0), (230.0, 290.0)), ((50.0, 90.0), (160.0, 180.0), (230.0, 250.0))


def parse_tables(monkeypatch: pytest.MonkeyPatch, pages: list[list[Block]]) -> list[str]:
    """Return the markdown of pages of these blocks."""
    numbers = [SimpleNamespace(page_num=number) for number in range(1, len(pages) + 1)]
    parser = SimpleNamespace(parse_bytes=lambda data: SimpleNamespace(pages=numbers))
    monkeypatch.setattr(liteparse_pages, "shared_parser", lambda: parser)
    monkeypatch.setattr(liteparse_pages, "_page_blocks", lambda page, levels: pages[page.page_num - 1])
    return [page.markdown for page in liteparse_pages.parse_pages(b"").values()]


def table_block(rows: list[list[str]], columns: tuple[tuple[float, float], ...]) -> Block:
    box = Box(columns[0][0], 100, columns[-1][1], 200)
    return Block(box, "a table", Table(box, rows, columns))


def title_block(text: str) -> Block:
    return Block(Box(50, 50, 150, 60), f"# {text}", level=1)


@pytest.mark.parametrize("title", ["Benefits", "Benefits (continued)"])
def test_each_page_of_a_table_repeats_both_rows_of_its_header(monkeypatch: pytest.MonkeyPatch, title: str) -> None:
    first = [title_block("Benefits"), table_block([*HEADER, ["Visit", "$60", "20 %"]], WIDE)]
    others = [[title_block(title), table_block([[name, "$5", "9 %"]], NARROW)] for name in ("Scan", "Test")]

    pages = parse_tables(monkeypatch, [first, *others])

    for page, name in zip(pages[1:], ("Scan", "Test"), strict=True):
        rows = [line for line in page.split("\n") if line.startswith("| ")]
        assert [row.strip("| ").partition(" ")[0] for row in rows] == ["Service", "Copay", name]


@pytest.mark.parametrize(
    ("title", "columns"),
    [("Dental", WIDE), ("Benefits", ((50.0, 155.0), (165.0, 235.0), (240.0, 290.0)))],
    ids=["another title", "other columns"],
)
def test_another_table_gets_no_header_of_the_last_page(
    monkeypatch: pytest.MonkeyPatch, title: str, columns: tuple[tuple[float, float], ...]
) -> None:
    first = [title_block("Benefits"), table_block([*HEADER, ["Visit", "$60", "20 %"]], WIDE)]
    second = [title_block(title), table_block([["Crown", "$5", "9 %"]], columns)]

    assert "Service" not in parse_tables(monkeypatch, [first, second])[1]


def test_an_entry_of_a_table_of_contents_is_no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [[table_block([[f"Chapter {n}", ". 1"], ["Section", ". 2"]], WIDE[:2])] for n in (1, 2)]

    assert "Chapter 1" not in parse_tables(monkeypatch, pages)[1]


def shaded(xs: list[float], y0: float, y1: float) -> list[Box]:
    """Return the edges of a row of shaded cells."""
    return grid(xs, [y0, y1])


@pytest.mark.parametrize("between", ["Visit", "A text between two tables"])
def test_rows_between_and_after_shaded_rows_are_of_their_table(between: str) -> None:
    rows = [["Service", "Copay"], [between, "$60"], ["Scan", "$90"], ["Test", "$10"]]
    text = lines(rows, xs=[55, 155], leading=20, top=55)

    tables = find_tables(text, [*shaded([50, 150, 250], 50, 70), *shaded([50, 150, 250], 90, 110)])

    assert [table.rows for table in tables] == ([rows] if between == "Visit" else [])


def test_a_row_between_tables_of_two_shaded_rows_joins_them() -> None:
    rows = [["Service", "Copay"], ["Visit", "$60"], ["Scan", "$90"], ["Test", "$10"], ["Care", "$20"]]
    rules = [*grid([50, 150, 250], [50, 70, 90]), *grid([50, 150, 250], [110, 130, 150])]

    assert rows_of(find_tables(lines(rows, xs=[55, 155], leading=20, top=55), rules)) == rows


def test_a_far_or_torn_row_is_not_of_the_shaded_ones() -> None:
    text = lines([["Service", "Copay"], ["Visit", "$60"], ["Scan", "$90"]], xs=[55, 155], leading=60, top=55)

    assert find_tables(text, [*shaded([50, 150, 250], 50, 70), *shaded([50, 150, 250], 170, 190)]) == []


def test_a_line_below_each_row_parts_rows_of_several_lines() -> None:
    rows = [["Section", "Cover"], ["1", "Buildings, fences"], ["", "and sheds"], ["2", "Contents"], ["3", "Garden"]]
    rules = [Box(48, y - 1, 260, y - 1) for y in (112, 136, 148)]

    found = rows_of(find_tables(lines(rows, xs=[50, 110], leading=12), rules))

    assert found == [rows[0], ["1", "Buildings, fences and sheds"], *rows[3:]]


def test_columns_that_nearly_touch_are_parted_where_several_lines_have_a_gap() -> None:
    rows = [
        ["Code", "Procedure", "Pays"],
        ["D1007", "Crown", "80%"],
        ["D1014", "Bridge", "60%"],
        ["D1021", "Inlay", "5%"],
    ]

    assert rows_of(find_tables(lines(rows, xs=[50, 80.5, 150], leading=12), [])) == rows


def test_the_wide_spaces_of_a_typewriter_part_no_columns() -> None:
    prose = [
        "The plan pays what the",
        "You must pay part of the",
        "All bills must be sent to",
        "Ask them what it will be",
    ]
    text = [
        Word(
            word,
            Box(x := 50 + 6 * sum(len(w) + 1 for w in line.split()[:n]), 100 + 12 * m, x + 6 * len(word), 110 + 12 * m),
        )
        for m, line in enumerate(prose)
        for n, word in enumerate(line.split())
    ]

    assert find_tables(text, []) == []


def test_a_heading_between_rows_with_the_same_columns_is_a_row() -> None:
    rows = [["Service", "You pay"], ["Hospital", ""], ["Stay", "$300"], ["Surgery", "$150"]]

    assert rows_of(find_tables(lines(rows, xs=[50, 150], leading=12), [], [Box(50, 112, 90, 122)])) == rows


def test_three_numbers_below_each_other_are_three_rows() -> None:
    rows = [["Kind", "Benefit", "Limit", "Wait"], ["", "Physio", "$500", "None"], ["Therapy", "Chiro", "$350", "None"]]
    rows.append(["", "Osteo", "$300", "None"])

    assert rows_of(find_tables(lines(rows, xs=[50, 110, 180, 240], leading=11), [])) == rows


def test_cards_side_by_side_are_a_table_each() -> None:
    cards = [["Sum insured", "$250"], ["Excess", "$20"], ["Premium", "$14"]]
    others = [["Limit", "$900"], ["Share", "20%"], ["Price", "$31"]]
    text = lines([[*one, *two] for one, two in zip(cards, others, strict=True)], xs=[55, 125, 205, 275], leading=12)
    frames = [rule for x in (50.0, 200.0) for rule in grid([x, x + 140], [95, 140])]

    assert [table.rows for table in find_tables(text, frames)] == [cards, others]


def test_lines_across_a_frame_part_rows_and_not_columns() -> None:
    rows = [["Service", "Copay"], ["Visit", "$60"], ["Scan", "$90"]]
    text = lines(rows, xs=[55, 155], leading=20, top=55)

    assert rows_of(find_tables(text, grid([50, 250], [50, 70, 90, 110]))) == rows


def test_titles_side_by_side_have_a_table_each() -> None:
    top = [*words(50, 100, "Medical"), *words(230, 100, "Drugs")]
    rows = [
        ["Service", "You pay", "Tier", "Retail"],
        ["Visit", "$25", "Generic", "$10"],
        ["Scan", "$90", "Brand", "$40"],
    ]

    tables = find_tables([*top, *lines(rows, xs=[50, 130, 230, 310], leading=12, top=112)], [])

    assert [(table.title, table.rows) for table in tables] == [
        ("Medical", [row[:2] for row in rows]),
        ("Drugs", [row[2:] for row in rows]),
    ]


def test_a_word_broken_at_its_hyphen_is_one_word_in_a_cell() -> None:
    text = [*words(55, 52, "Service"), *words(155, 52, "Out-of-"), *words(155, 63, "network -")]
    text += [*words(55, 82, "Visit"), *words(155, 82, "$60")]

    rows = rows_of(find_tables(text, grid([50, 150, 250], [50, 75, 95])))

    assert rows == [["Service", "Out-of-network -"], ["Visit", "$60"]]


@pytest.mark.parametrize(
    "rows",
    [
        [["3.1", "What is covered", "4"], ["3.2", "What is excluded", "7"], ["3.3", "How to appeal", "12"]],
        [["1", "Preface", "ix"], ["3.2", "Excluded", "7"], ["3.3", "How to appeal", "12"], ["4", "Forms", "15"]],
    ],
    ids=["counted", "Roman"],
)
def test_section_numbers_with_titles_and_pages_are_contents(rows: list[list[str]]) -> None:
    assert find_tables(lines(rows, xs=[50, 100, 250], leading=12), []) == []


def test_a_section_number_in_one_cell_with_its_title_is_one_of_contents() -> None:
    rows = [["3.1 What the plan covers", "", "4"], ["3.2", "What is excluded", "7"], ["3.3", "How to appeal", "12"]]

    assert not is_table(rows)


def test_lines_down_in_the_header_only_leave_the_columns_below_apart() -> None:
    rows = [["Service", "In network", "Out"], ["Ambulance by", "$90 after", "Not paid"], ["ground", "deductible", ""]]
    rows += [["Hearing aids", "$500", "Half"], ["Home care", "10%", "40%"]]
    text = [
        word
        for y, row in zip((55, 75, 86, 105, 125), rows, strict=True)
        for word in lines([row], xs=[55, 155, 255], leading=0, top=y)
    ]
    across = [Box(50, y, 350, y) for y in (50, 70, 100, 120, 140)]
    down = [Box(x, 50, x, 70) for x in (150, 250)] + [Box(x, 50, x, 140) for x in (50, 350)]

    found = rows_of(find_tables(text, across + down))

    assert found == [rows[0], ["Ambulance by ground", "$90 after deductible", "Not paid"], *rows[3:]]


def test_a_spanning_cell_whose_space_meets_an_edge_stays_one() -> None:
    rules = [*grid([50, 250], [50, 70, 90, 110]), Box(150, 70, 150, 110)]
    text = [
        *words(117, 55, "Your share"),
        *lines([["Visit", "$60"], ["Scan", "$80"]], xs=[55, 155], leading=20, top=75),
    ]

    assert rows_of(find_tables(text, rules)) == [["Your share", ""], ["Visit", "$60"], ["Scan", "$80"]]


def test_lists_side_by_side_with_the_same_labels_are_a_table_each() -> None:
    rows = [
        ["Medical", "Weekly", "Dental", "Weekly"],
        ["Alone", "$31", "Alone", "$4"],
        ["Family", "$95", "Family", "$9"],
    ]

    found = [table.rows for table in find_tables(lines(rows, xs=[50, 120, 220, 290], leading=12), [])]

    assert found == [[row[:2] for row in rows], [row[2:] for row in rows]]


def test_labels_of_figures_may_be_indented() -> None:
    rows = [["", "2024", "2023"], ["Premiums", "12", "11"], ["Income", "9", "8"], ["Losses", "(4)", "(7)"]]
    indents = [0, 0, 25, 45]
    text = [
        word
        for n, (row, x) in enumerate(zip(rows, indents, strict=True))
        for word in lines([row], xs=[50 + x, 200, 260], leading=0, top=100 + 12 * n)
    ]

    assert rows_of(find_tables(text, [])) == rows


def test_a_currency_apart_from_its_sum_is_of_its_cell() -> None:
    rows = [["Premiums", "$", "12", "$", "11"], ["Income", "", "19", "", "18"], ["Share", "", "94", "", "96"]]

    found = rows_of(find_tables(lines(rows, xs=[50, 150, 175, 250, 275], leading=12), []))

    assert found == [["Premiums", "$ 12", "$ 11"], ["Income", "19", "18"], ["Share", "94", "96"]]


def test_marks_of_a_list_are_no_column_of_the_engine_s_table() -> None:
    cells = [[SimpleNamespace(text=text) for text in row] for row in (["\x84", "Yes, at once"], ["\x84", "No"])]
    block = SimpleNamespace(kind="table", header=None, rows=cells)

    assert liteparse_pages._render(block) == "\x84 Yes, at once\n\x84 No"


def test_a_table_of_the_engine_with_a_text_for_a_cell_is_read_column_by_column() -> None:
    text = "word " * 151
    cells = [[SimpleNamespace(text=one), SimpleNamespace(text=two)] for one, two in (("", text), ("Nut", "Key"))]
    box = SimpleNamespace(x=0.0, y=0.0, width=9.0, height=9.0)
    block = SimpleNamespace(kind="table", header=None, rows=cells, bbox=box, level=None)
    graphics = SimpleNamespace(lines=[])

    (found,) = liteparse_pages._page_blocks(
        SimpleNamespace(text_items=[], blocks=[block], vector_graphics=graphics), {}
    )

    assert found.markdown == f"Nut\n\n{text}\n\nKey"
    assert not found.is_table


@pytest.mark.parametrize(
    ("x", "y", "rest"), [(40, 112, "\n\n"), (50, 122, "\n\n"), (50, 112, " "), (60, 112, " ")],
    ids=["left of the mark", "after a space", "not hanging", "hanging"],
)  # fmt: skip
def test_a_paragraph_below_a_list_is_not_its_last_item(x: float, y: float, rest: str) -> None:
    block = SimpleNamespace(kind="list_item", level=0, ordered=False, text="Surfing lesson. They are great.")
    text = [*words(50, 100, "• Surfing lesson."), *words(x, y, "They are great.")]

    assert liteparse_pages._render_item(block, Box(40, 95, 200, 140), text) == f"- Surfing lesson.{rest}They are great."


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([("$", 50, 54), ("10", 57, 66), (".000,00", 66, 92)], ["$", "10.000,00"]),
        ([("1", 50, 54.2), (".87", 53.9, 65), ("0", 70, 74), (".9", 74, 80)], ["1.87", "0.9"]),
        ([("See", 50, 60), (".pdf", 63, 80)], ["See", ".pdf"]),
        ([("Visit", 50, 60), (".", 63, 64), (".", 66, 67), (".$10", 69, 80)], ["Visit", "$10"]),
    ],
    ids=["thousands", "decimals", "apart", "leader"],
)
def test_a_number_is_not_torn_at_its_point(pieces: list[tuple[str, float, float]], expected: list[str]) -> None:
    torn = [Word(text, Box(x0, 100, x1, 109)) for text, x0, x1 in pieces]

    assert [word.text for word in liteparse_pages._join_torn(torn)] == expected


def test_rows_without_space_between_them_are_rows_though_their_groups_have() -> None:
    text = lines([["Date", "Charge", "Balance"]], xs=[50, 150, 250], leading=12, top=88)
    for group in range(3):
        rows = [[f"0{group}/{day}", f"{day}.00", f"{group}{day}.40"] for day in (10, 20, 30)]
        text += lines(rows, xs=[50, 150, 250], leading=10.5, top=100 + 45 * group)

    rows = rows_of(find_tables(text, []))

    assert len(rows) == 10
    assert rows[:2] == [["Date", "Charge", "Balance"], ["00/10", "10.00", "010.40"]]
    assert rows[-1] == ["02/30", "30.00", "230.40"]


def test_heads_of_several_lines_stand_over_their_columns_though_their_words_nearly_touch() -> None:
    heads = [*words(130, 76, "Under 18"), *words(143, 88, "years"), *words(170, 88, "and over")]
    label, rows = words(50, 88, "Offense"), [["Burglary", "240.9", "4,180.6"], ["Arson", "809.8", "9,455.5"]] * 2
    text = [word for n, row in enumerate(rows) for word in words(50, 104 + 12 * n, row[0])]
    text += [word for n, row in enumerate(rows) for word in words(143, 104 + 12 * n, row[1])]
    text += [word for n, row in enumerate(rows) for word in words(173, 104 + 12 * n, row[2])]

    found = rows_of(find_tables([*heads, *label, *text], []))

    assert found == [["Offense", "Under 18 years", "and over"], *rows]


def test_figures_stacked_in_one_ruled_cell_are_rows() -> None:
    rows = [
        ["Burglary", "240.9", "60.3"],
        ["Arson", "9.8", "4.3"],
        ["Robbery", "102.1", "25.5"],
        ["Fraud", "173.7", "5.1"],
    ]
    text = [*words(55, 52, "Offense"), *words(155, 52, "All"), *words(255, 52, "Under 18")]

    found = rows_of(
        find_tables([*text, *lines(rows, xs=[55, 155, 255], leading=12, top=75)], grid([50, 150, 330], [50, 70, 130]))
    )

    assert found == [["Offense", "All", "Under 18"], *rows]


def test_a_label_in_the_middle_of_its_rows_is_of_each() -> None:
    cells = [["Replacement cost", "$412"], ["Other structures", "$41"], ["Ordinance", "10%"], ["Contents", "$206"]]
    text = lines([*cells, ["Jewelry", "$18"]], xs=[150, 260], leading=13)
    labels = [*words(50, 113, "Dwelling"), *words(50, 145.5, "Property")]

    rows = rows_of(find_tables([*text, *labels], []))

    assert [row[0] for row in rows] == ["Dwelling"] * 3 + ["Property"] * 2
    assert rows[4][1:] == ["Jewelry", "$18"]


def test_labels_that_stand_closer_than_their_rows_stay_beside_them() -> None:
    tops = 100, 120, 131
    labels = [Word(text, Box(50, y - 1, 70, y + 9.5)) for text, y in zip(("MAX", "MIN", "DAY"), tops, strict=True)]
    cells = [Word(f"{y}.5", Box(x, y, x + 25, y + 8)) for x in (150, 200) for y in tops]

    rows = rows_of(find_tables([*labels, *cells], []))

    assert [row[0] for row in rows] == ["MAX", "MIN", "DAY"]


@pytest.mark.parametrize(
    ("above", "label", "below", "expected"),
    [
        ("Violent crime", "Drug abuse", "Larceny", ["Violent crime", "Drug abuse", "Larceny"]),
        ("Violent crime in all", "Murder and", "theft", ["Violent crime in all", "Murder and theft"]),
        ("Violent crime in all", "Regions", "Larceny", ["Violent crime in all Regions", "Larceny"]),
    ],
    ids=["title of a group", "first line of a label", "last line of a label"],
)  # fmt: skip
def test_a_label_alone_on_its_line_belongs_above_or_below(
    above: str, label: str, below: str, expected: list[str]
) -> None:
    others = ["Offenses against family", "3", "4"], ["Fraud", "9", "9"]
    wide = [others[0], [above, "5", "6"], [label, "", ""], [below, "7", "8"], others[1]]

    rows = rows_of(find_tables(lines(wide, xs=[50, 250, 300], leading=11), []))

    assert [row[0] for row in rows] == ["Offenses against family", *expected, "Fraud"]


def test_a_running_header_and_a_note_are_no_rows() -> None:
    header = [*words(200, 60, "SANTEE RIVER BASIN"), *words(545, 60, "153")]
    rows = [["Station", "2003", "2004", "2005", "2006", "2007"], *[[f"Gauge {n}", *["1.5"] * 5] for n in "abcd"]]
    note = [*words(50, 134, "a"), *words(66, 134, "Estimated from records of the weather service and of others nearby")]

    tables = find_tables([*header, *lines(rows, xs=[50, 120, 180, 240, 300, 360], leading=11, top=78), *note], [])

    assert rows_of(tables) == rows


def test_rotated_words_are_in_no_table_without_lines() -> None:
    rows = [["Visit", "$20"], ["Surgery", "$90"], ["Dental", "$30"]]
    stamp = [Word("Downloaded", Box(8, 95, 18, 150))]

    assert rows_of(find_tables(lines(rows, xs=[50, 150], leading=12), [], turned=stamp)) == rows


def test_turned_heads_are_read_in_their_direction() -> None:
    up = [("2", 53, 118), ("to", 53, 104), ("17", 53, 90), ("years", 66, 95)]
    down = [("65", 166, 55), ("and", 166, 70), ("over", 153, 60)]
    turned = [
        *(UpwardWord(text, Box(x, y, x + HEIGHT, y + 10)) for text, x, y in up),
        *(DownwardWord(text, Box(x, y, x + HEIGHT, y + 10)) for text, x, y in down),
    ]
    rules = grid([50, 150, 250], [50, 130, 150, 170])

    rows = rows_of(
        find_tables(lines([["$5", "$9"], ["$6", "$8"]], xs=[55, 155], leading=20, top=135), rules, (), turned)
    )

    assert rows[0] == ["2 to 17 years", "65 and over"]


def test_long_texts_in_columns_whose_rows_begin_side_by_side_are_one_table() -> None:
    covered, cost = "We pay for it when it is approved before", "Members pay sixty dollars for each visit"
    rows = [[label, covered, cost] for label in ("Surgery", "Imaging", "Therapy")]
    placed = [
        word
        for n, row in enumerate(rows)
        for wrapped in range(3)
        for x, text in zip([50, 100, 340], row if wrapped == 0 else ["", *row[1:]], strict=True)
        for word in words(x, 100 + 45 * n + 11 * wrapped, text)
    ]

    assert [len(row) for row in rows_of(find_tables(placed, []))] == [3, 3, 3]


@pytest.mark.parametrize(
    ("label", "figures", "count"),
    [
        (["Adult", "Child"], ["$60", "$45"], 3),
        (["Adult"], ["$60", "$45"], 2),
        (["Adult", "or child"], ["$60", "$45"], 2),
        (["Adult", "Child"], ["$60", "each"], 2),
    ],
    ids=["two", "one label", "wrapped label", "words"],
)  # fmt: skip
def test_a_ruled_row_with_a_label_and_figures_on_each_of_two_lines_is_two(
    label: list[str], figures: list[str], count: int
) -> None:
    head = lines([["Plan", "Person", "In", "Out"]], xs=[55, 155, 255, 355], leading=20, top=55)
    row = [
        words(x, 75 + 12 * n, text)
        for x, texts in ((155, label), (255, figures), (355, figures))
        for n, text in enumerate(texts)
    ]
    text = [*head, *words(55, 80, "Gold"), *(word for each in row for word in each)]

    rows = rows_of(find_tables(text, grid([50, 150, 250, 350, 450], [50, 70, 105])))

    assert len(rows) == count
    assert count == 2 or rows[1:] == [["Gold", *each] for each in zip(label, figures, figures, strict=True)]


SHARED_HEAD = "| Service | What is covered | Cost |\n|---|---|---|"
CUT = "| Visit | With a doctor | $20 |\n| Surgery | When it is | $90 |"


@pytest.mark.parametrize(
    ("above", "below", "joined"),
    [
        (CUT, "|  | approved before |  |\n| Dental | Twice | $30 |", True),
        (CUT, "| Anaesthesia | approved before |  |\n| Dental | Twice | $30 |", False),
        (CUT, "|  | Each of them |  |\n| Dental | Twice | $30 |", False),
        (CUT, "|  | For children under two years |  |\n| Dental | Twice | $30 |", True),
        (CUT, "|  | Outpatient | $45 |\n| Dental | Twice | $30 |", False),
        (CUT.replace("Visit", ""), "|  | approved before |  |\n| Dental | Twice | $30 |", False),
        (CUT.replace("When it is", "primary"), "|  | specialist |  |\n| Dental | Twice | $30 |", False),
        (CUT, "|  | approved before |  |", True),
    ],
    ids=["cut", "label", "other line", "text", "value", "labels are empty", "terms", "nothing else"],
)  # fmt: skip
def test_the_rest_of_a_row_joins_it_over_a_page_and_a_row_without_label_stays(
    above: str, below: str, joined: bool
) -> None:
    first, second = join_cut_rows([f"{SHARED_HEAD}\n{above}", f"{SHARED_HEAD}\n{below}\n\nOn."])

    assert (second == f"{SHARED_HEAD}\n{below}\n\nOn.") is not joined
    if joined:
        rest = below.split("|")[2].strip()
        assert first.endswith(f" {rest} | $90 |")
        assert second == ("On." if below.count("\n") == 0 else f"{SHARED_HEAD}\n| Dental | Twice | $30 |\n\nOn.")
