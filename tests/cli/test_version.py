"""The version, as everybody asks for it."""

from __future__ import annotations

from ontolake import __version__


def test_it_is_told_by_an_option_and_by_a_command(onto) -> None:
    assert onto("--version").out == f"onto {__version__}\n"
    assert onto("version", "--json").document["ontolake"] == __version__
    assert onto().code == 2
