"""The report of records that no run left."""

from collections.abc import Sequence

from made import study

from capsexp import report
from capsexp.report.pictures import Picture
from capsexp.results import tables
from capsexp.results.aggregate import Outcome
from capsexp.run.records import Record
from capsexp.study.studies import Study


def page(found: Sequence[Record], *made: Study, drawn: Sequence[Picture] = (), problems: Sequence[str] = ()) -> str:
    """The page of studies, of `made.study()` where there are none, and of these records."""
    lines = tables.runs(found)
    shown = [tables.make(one, lines) for one in made or (study(),)]
    outcome = Outcome(records=list(found), problems=list(problems))
    return report.page(shown, outcome, lines, drawn, "runs")
