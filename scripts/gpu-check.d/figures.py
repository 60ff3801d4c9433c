# SPDX-License-Identifier: MIT
"""What a line of the list found: figures with what was expected beside them, and whether that holds."""
import dataclasses
import re
import typing

PASS, FAIL, NOT_RUN, SEEN = "pass", "FAIL", "not run", "seen"


@dataclasses.dataclass
class Figure:
    """`good` is None where a figure is shown and not judged; `reason` says why it was not measured, or failed."""
    name: str
    expected: str
    measured: str
    good: typing.Optional[bool] = None
    reason: str = ""

    @property
    def result(self):
        if self.good is None:
            return NOT_RUN if self.reason else SEEN
        return PASS if self.good else FAIL


class NotRun(Exception):
    """Why a line cannot be run by this program or on this machine."""


@dataclasses.dataclass
class Outcome:
    """Of a line: its figures, and in one word what became of it."""
    number: int
    title: str
    limit_seconds: float
    result: str = NOT_RUN
    reason: str = ""
    seconds: float = 0.0
    figures: typing.List[Figure] = dataclasses.field(default_factory=list)
    output: str = ""

    def judge(self):
        """A line passes where something was judged and nothing failed: nothing that ran is no pass."""
        if any(figure.good is False for figure in self.figures):
            self.result = FAIL
        elif any(figure.good for figure in self.figures):
            self.result = PASS
        else:
            missing = [figure.reason for figure in self.figures if figure.reason]
            self.result = NOT_RUN if missing else FAIL
            self.reason = self.reason or (missing[0] if missing else "it judged nothing")

    def as_json(self):
        found = dataclasses.asdict(self)
        found["figures"] = [{**dataclasses.asdict(figure), "result": figure.result} for figure in self.figures]
        return found


def at_least(name, measured, least, text, expected=None):
    return Figure(name, expected or f">= {text(least)}", text(measured), measured >= least)


def equal(name, measured, wanted):
    return Figure(name, str(wanted), str(measured), measured == wanted)


def not_run(name, expected, reason):
    return Figure(name, expected, "", None, reason)


def table(outcomes):
    """Lines of text: each line of the list, and below it its figures."""
    rows = []
    for outcome in outcomes:
        time = f"{outcome.seconds:.0f} of {outcome.limit_seconds:.0f} s" if outcome.seconds else ""
        rows.append((f"{outcome.number:>2}  {outcome.title}", "", time, outcome.result, outcome.reason))
        rows += [("      " + figure.name, figure.expected, figure.measured, figure.result, figure.reason)
                 for figure in outcome.figures]
    widths = [max(len(row[column]) for row in rows + [HEADER]) for column in range(4)]
    return [re.sub(r"\s+$", "", "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[4]]))
            for row in [HEADER, *rows]]


HEADER = ("line", "expected", "measured", "result", "why")
