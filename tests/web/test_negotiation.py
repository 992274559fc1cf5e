import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.negotiation import Format, accepts_gzip, choose_format

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_2_OLD = "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
PROTOBUF_FIRST = "application/vnd.google.protobuf;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Format.TEXT),
        ("*/*", Format.TEXT),
        (PROMETHEUS_3, Format.OPENMETRICS),
        (PROMETHEUS_2_OLD, Format.TEXT),
        (PROTOBUF_FIRST, Format.TEXT),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Format.TEXT),
        ("application/openmetrics-text", Format.OPENMETRICS),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", Format.OPENMETRICS),
        ('application/openmetrics-text; version="1.0.0"', Format.OPENMETRICS),
        ("APPLICATION/OpenMetrics-Text; Version=1.0.0", Format.OPENMETRICS),
        ("application/openmetrics-text; version=2.0.0", Format.TEXT),
        ("application/openmetrics-text;q=0", Format.TEXT),
        ("application/openmetrics-text;q=0.0, */*", Format.TEXT),
        ("application/openmetrics-text, */*", Format.OPENMETRICS),
        ("application/*, text/plain;q=0.5", Format.OPENMETRICS),
        ("application/openmetrics-text;q=0.4, text/plain;q=0.5", Format.TEXT),
        ("application/openmetrics-text;q=0.5, text/plain;q=0.4", Format.OPENMETRICS),
        ("text/plain;q=0, */*;q=1", Format.OPENMETRICS),
        ("application/openmetrics-text, text/plain", Format.TEXT),
        ("application/json", Format.TEXT),
        ("application/openmetrics-text;q=lots", Format.TEXT),
        ("application/openmetrics-text;q=1e3", Format.TEXT),
        (",,;q=,=;", Format.TEXT),
    ],
)
def test_format_follows_the_accept_header(accept, expected):
    assert choose_format(accept) is expected


@pytest.mark.parametrize(
    ("accept_encoding", "expected"),
    [
        ("", False),
        ("gzip", True),
        ("GZip", True),
        ("x-gzip", True),
        ("gzip, deflate, br", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000", False),
        ("gzip;q=0, *", False),
        ("*", True),
        ("*;q=0", False),
        ("identity", False),
        ("gzip;q=0.5, identity;q=1", False),
        ("gzip;q=1.0, identity; q=0.5", True),
        ("gzip, identity;q=0", True),
        ("deflate, br", False),
        ("gzip;q=much", False),
        ("gzip ; q = 0.3", True),
    ],
)
def test_gzip_follows_the_accept_encoding_header(accept_encoding, expected):
    assert accepts_gzip(accept_encoding) is expected


@given(st.text(alphabet=st.characters(max_codepoint=255)) | st.text(alphabet="*/;=,q10. agzip"))
def test_every_header_value_has_an_answer(header):
    assert choose_format(header) in Format
    assert accepts_gzip(header) in (True, False)


@given(st.lists(st.sampled_from(PROMETHEUS_3.split(",")), unique=True).flatmap(lambda r: st.permutations(r)))
def test_the_order_of_the_ranges_does_not_matter(ranges):
    assert choose_format(",".join(ranges)) is choose_format(",".join(sorted(ranges)))
