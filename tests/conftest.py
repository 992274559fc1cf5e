import pytest
from hypothesis import settings

import podresources  # noqa: F401 - as in the exporter, before gRPC, which it keeps quiet

# No example may fail for being slow: the machines that run this are shared.
settings.register_profile("podgpu", deadline=None)
settings.load_profile("podgpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write the golden pages anew instead of comparing")
