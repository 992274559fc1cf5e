from pathlib import Path

from enforcer.documentation import configuration as page


def test_the_configuration_page_is_the_generated_one():
    committed = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert committed.read_text() == page(), "run `make docs`"
