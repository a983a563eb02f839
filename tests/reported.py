"""The report of made-up records."""

from collections.abc import Sequence

from made import frame_of, study

from capsexp import report
from capsexp.report.pictures import Picture
from capsexp.results.collect import collect
from capsexp.run.records import Record
from capsexp.study.studies import Study


def page(found: Sequence[Record], *made: Study, drawn: Sequence[Picture] = (), problems: Sequence[str] = ()) -> str:
    """The page of studies, of `made.study()` where there are none, and of these records."""
    runs = frame_of(found)
    return report.page(collect(made or (study(),), runs), runs, drawn, "runs", problems)
