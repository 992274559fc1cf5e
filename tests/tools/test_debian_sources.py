"""Which of a machine's package sources are used, and what is said where packages can't be had."""

import pytest

from tools import debian_packages
from tools.debian_packages import FetchError, Source, deb822_sources, main, one_line_sources, release_sources

_ONE_LINE = """\
# deb cdrom:[Debian]/ bookworm main
deb mirror bookworm main contrib  # comment
deb [arch=amd64 signed-by=/keys/a.gpg] other stable main
deb [ arch=amd64 ] spaced bookworm-updates main
deb-src mirror bookworm main
deb flat-without-suite
"""
_DEB822 = """\
Types: deb deb-src
# a comment
URIs: mirror
Suites: bookworm bookworm-updates
Components: main
Signed-By: /keys/debian.gpg

Enabled: no
Types: deb
URIs: off
Suites: bookworm

Types: deb-src
URIs: sources-only
Suites: bookworm
"""
_MAIN = Source("mirror", "bookworm", ("main",), "/keys/debian.gpg")


def test_one_line_sources():
    assert list(one_line_sources(_ONE_LINE)) == [
        Source("mirror", "bookworm", ("main", "contrib")),
        Source("other", "stable", ("main",), "/keys/a.gpg"),
        Source("spaced", "bookworm-updates", ("main",)),
    ]


def test_deb822_sources():
    assert list(deb822_sources(_DEB822)) == [_MAIN, Source("mirror", "bookworm-updates", ("main",), "/keys/debian.gpg")]


def test_what_a_source_says_is_read_back_the_same():
    assert list(one_line_sources(_MAIN.line)) == [_MAIN]


def test_only_the_release_of_the_machine_is_asked():
    others = [Source("vendor", "nodistro", ("main",)), Source("mirror", "bookworm-updates", ("main",))]
    assert release_sources([_MAIN, *others], codename="bookworm") == [_MAIN, others[1]]


def test_another_release_and_component_of_the_same_archive():
    updates = Source("mirror", "bookworm-updates", ("main",))
    found = release_sources([_MAIN, updates], codename="bookworm", suite="trixie", component="non-free")
    assert found == [Source("mirror", "trixie", ("non-free",), "/keys/debian.gpg")]


def test_a_machine_of_another_kind_is_told_in_one_line():
    with pytest.raises(FetchError, match="nothing for bookworm"):
        release_sources([], codename="bookworm")


def test_what_is_there_already_is_not_fetched(capsys):
    assert main(["no-such-package", "--programs", "sh"]) == 0
    assert capsys.readouterr().out == ""


def test_without_apt_it_says_what_to_do_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["some-package", "--into", str(tmp_path / "into")]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "put the programs on the PATH" in said or "apt sources" in said


def test_a_source_that_does_not_answer_is_one_line(tmp_path):
    gone = [Source(f"file:{tmp_path}/gone", "bookworm", ("main",))]
    with pytest.raises(FetchError) as error:
        debian_packages.fetch(["some-package"], into=tmp_path / "into", sources=gone)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "into").exists()
