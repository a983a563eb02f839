"""The README says what is there: every file of the configuration, links that lead somewhere.

Its tables are compared with the records in test_aggregate.
"""

import re

from support import ROOT

from capsexp.config.compose import CONF
from capsexp.results import findings

README = (ROOT / "README.md").read_text()


def test_every_file_of_the_configuration_is_in_the_picture_of_it() -> None:
    words = re.findall(r"[\w-]+", README)
    groups = [folder for folder in CONF.iterdir() if folder.is_dir() and folder.name != "hydra"]
    for path in (path for group in groups for path in group.glob("*.yaml")):
        assert path.stem in words, f"{path.relative_to(CONF)} is missing in the picture of the configuration"


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_it_has_one_place_for_the_tables() -> None:
    assert README.count(findings.BEGIN) == README.count(findings.END) == 1
    assert README.index(findings.BEGIN) < README.index("| study | source |") < README.index(findings.END)
