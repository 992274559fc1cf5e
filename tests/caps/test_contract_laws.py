"""What holds of any annotations at all: no exception, no cap that the text does not say, nothing lost on the way."""

import re
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.caps.canonical import understood
from exporter.caps.contract import read
from exporter.caps.keys import ContainerKey, PodKey, in_full
from exporter.caps.quantities import Fault, count, mebibytes, quantity, quantity_text, ratio, ratio_text
from exporter.caps.requests import CapRequest, ComputeMode, PodCaps, Reaction, Share, limits
from exporter.model import ContainerKind, PodContainer

PREFIX = "nvidia.com/container."
NAMES = ("main", "helper", "gpu-memory.limit", "init")
CONTAINERS = (*(PodContainer(name) for name in NAMES[:3]), PodContainer("init", ContainerKind.INIT))
MIB = 1 << 20
EXACT = Context(prec=400)

our_keys = st.one_of(
    st.builds(
        lambda key, name: in_full(key, name, PREFIX), st.sampled_from(ContainerKey), st.sampled_from((*NAMES, "x"))
    ),
    st.sampled_from(PodKey).map(str),
)
digits = st.text("0123456789", max_size=5)
numbers = st.builds(
    lambda sign, whole, point, part, unit: sign + whole + point + part + unit,
    st.sampled_from(["", "", "", "+", "-"]),
    digits,
    st.sampled_from(["", "."]),
    digits,
    st.sampled_from(
        ["", "", "Ki", "Mi", "Gi", "Ei", "k", "M", "G", "m", "u", "n", "e3", "E-2", "e9", "GB", "%", " Gi"]
    ),
)
texts = st.one_of(
    numbers,
    st.sampled_from([*NAMES, *ComputeMode, *Reaction, "GPU-a", "GPU-a,GPU-b", "x/gpu=all", "true", "Regular", "nan"]),
    st.sampled_from(["0.5", "0.8", "4096", "4Gi", "8Gi", "8192Mi", "1"]),
    st.text(max_size=40),
)
keys = st.one_of(
    our_keys, our_keys.flatmap(lambda key: st.text(max_size=3).map(lambda end: key + end)), st.text(max_size=60)
)
annotations = st.dictionaries(st.one_of(our_keys, our_keys, keys), texts, max_size=8)


@given(annotations)
@settings(max_examples=400)
def test_any_text_is_read_and_every_error_can_be_shown(written):
    caps = read(written, CONTAINERS)
    for error in caps.errors:
        assert error.container in {"", *NAMES}
        assert error.sentence.isascii()
        assert error.sentence.isprintable()
        assert len(error.sentence) < 1200
    assert set(caps.requests) <= set(NAMES)


@given(annotations, st.randoms(use_true_random=False))
def test_the_order_of_annotations_does_not_matter(written, random):
    shuffled = list(written.items())
    random.shuffle(shuffled)
    assert read(dict(shuffled), CONTAINERS) == read(written, CONTAINERS)


_PLAIN = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_UNITS = {"": "1", "n": "1e-9", "u": "1e-6", "m": "1e-3", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12", "P": "1e15"}


def bytes_said(text: str) -> int | None:
    """Bytes of a quantity, by the decimal module instead of fractions; None for what is no quantity."""
    number = _PLAIN.match(text)
    if number is None:
        return None
    unit = text[number.end() :]
    value = Decimal(number.group())
    if unit in {f"{letter}i" for letter in "KMGTPE"}:
        factor = Decimal(1024) ** (1 + "KMGTPE".index(unit[0]))
    elif re.fullmatch(r"[eE][+-]?[0-9]+", unit):
        factor = Decimal("1" + unit)
    elif unit in _UNITS or unit == "E":
        factor = Decimal(_UNITS.get(unit, "1e18"))
    else:
        return None
    return int(EXACT.multiply(value, factor).to_integral_value(ROUND_CEILING, EXACT))


@given(st.one_of(numbers, st.text("0123456789.+-eEKMGTPimkun ", max_size=12), st.text(max_size=12)))
@settings(max_examples=500)
def test_a_quantity_is_what_decimal_arithmetic_says(text):
    value = quantity(text)
    if isinstance(value, Fault):
        said = bytes_said(text) if len(text) <= 32 else None
        assert said is None or not MIB <= said < 1 << 63 or re.search(r"[eE][+-]?[0-9]{3}", text)
    else:
        assert value == bytes_said(text)


@given(annotations)
@settings(max_examples=400)
def test_every_amount_that_comes_out_is_one_that_some_annotation_says(written):
    said: set[int | Share] = set()
    for key, text in written.items():
        if key == PodKey.MEMORY:
            if re.fullmatch("[0-9]+", text):
                said.add(int(text) * MIB)
        elif key in (PodKey.FRACTION, PodKey.FRACTION_LIMIT) or key.endswith(".gpu-memory.portion.limit"):
            if _PLAIN.fullmatch(text):
                said.add(Share(Fraction(Decimal(text))))
        elif (size := bytes_said(text)) is not None:
            said.add(size)
    for request in read(written, CONTAINERS).requests.values():
        assert {request.requested, request.limit} - {None} <= said
        assert (request.requested is None) is (request.limit is None)
        assert set(request.sources) <= set(written)
        assert request.sources


@given(annotations, st.integers(MIB, 1 << 40))
def test_a_request_is_never_above_its_limit(written, capacity):
    for request in read(written, CONTAINERS).requests.values():
        found = limits(request, capacity)
        if found.limit is not None:
            assert found.requested is not None
            assert MIB <= found.requested <= found.limit


@given(annotations)
@settings(max_examples=400)
def test_what_was_understood_reads_the_same_again_without_errors(written):
    caps = read(written, CONTAINERS)
    again = read(understood(caps), CONTAINERS)
    assert again.errors == ()
    assert (again.requests, again.on_overrun, again.job) == (caps.requests, caps.on_overrun, caps.job)


sizes = st.integers(MIB, (1 << 63) - 1)
shares = st.integers(1, 99999).map(lambda n: Share(Fraction(n, 100000)))
pairs = st.one_of(
    st.tuples(sizes, sizes).map(sorted),
    st.tuples(shares, shares).map(lambda pair: sorted(pair, key=lambda share: share.ratio)),
    st.tuples(sizes, shares),
    st.just((None, None)),
)


@st.composite
def requests(draw):
    requested, limit = draw(pairs)
    threads = draw(st.integers(1, 100) if requested is None else st.none() | st.integers(1, 100))
    devices = draw(st.sampled_from([(), ("all",), ("GPU-a",), ("GPU-a", "1", "MIG-c")]))
    counts = st.none() | st.integers(1, 64) if requested is not None and devices in ((), ("all",)) else st.none()
    return CapRequest(
        "helper",
        requested=requested,
        limit=limit,
        active_thread_percentage=threads,
        compute_mode=draw(st.sampled_from(ComputeMode)),
        devices=devices,
        device_count=draw(counts) if devices in ((), ("all",)) else len(devices),
        on_overrun=draw(st.none() | st.sampled_from(Reaction)),
        job=draw(st.sampled_from(["", "nightly.eval_7"])),
    )


@given(requests())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_request_that_is_written_down_reads_the_same(request):
    written = understood(PodCaps({"helper": request}, (), request.on_overrun, request.job))
    caps = read(written, CONTAINERS)
    assert caps.errors == ()
    assert caps.requests == {"helper": request}


@given(sizes)
def test_quantities_read_back(size):
    assert quantity(quantity_text(size)) == size


@given(st.integers(1, 10**20 - 1))
def test_ratios_read_back(part):
    assert ratio(ratio_text(Fraction(part, 10**20))) == Fraction(part, 10**20)


@given(st.text(max_size=300))
def test_numbers_of_any_alphabet_and_length_are_refused_or_exact(text):
    for value in (mebibytes(text), count(text, most=100), ratio(text)):
        assert isinstance(value, Fault) or (text.isascii() and value == Fraction(text) * (MIB if value >= MIB else 1))
