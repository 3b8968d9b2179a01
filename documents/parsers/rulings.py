"""Lines that are drawn on a page, made whole, and the grids that they form."""

from collections import defaultdict

SNAP = 2.5  # two edges of a drawn line, or two drawn lines that meet
TOUCH = 3.0

Rule = tuple[float, float, float]  # its place on one axis, and from where to where on the other
Grid = tuple[list[Rule], list[Rule]]  # lines across and down


def join_rules(rules: list[Rule]) -> list[Rule]:
    """Return the lines with those at one place that overlap or meet made one."""
    joined: list[list[float]] = []
    open_: list[list[float]] = []
    for place, start, end in sorted(rules):
        open_ = [rule for rule in open_ if place - rule[3] <= SNAP]
        for rule in open_:
            if start <= rule[2] + TOUCH and end >= rule[1] - TOUCH:
                rule[1:] = [min(rule[1], start), max(rule[2], end), place]
                break
        else:
            open_.append([place, start, end, place])
            joined.append(open_[-1])
    return [((first + last) / 2, start, end) for first, start, end, last in joined]


def connect(across: list[Rule], down: list[Rule]) -> list[Grid]:
    """Return the lines across and down of each connected grid."""
    parents = list(range(len(across) + len(down)))

    def root(node: int) -> int:
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    for index, (y, x0, x1) in enumerate(across):
        for other, (x, y0, y1) in enumerate(down, start=len(across)):
            if x0 - TOUCH <= x <= x1 + TOUCH and y0 - TOUCH <= y <= y1 + TOUCH:
                parents[root(index)] = root(other)
    grids: dict[int, Grid] = defaultdict(lambda: ([], []))
    for index, rule in enumerate(across + down):
        grids[root(index)][index >= len(across)].append(rule)
    return [grid for grid in grids.values() if all(grid)]
