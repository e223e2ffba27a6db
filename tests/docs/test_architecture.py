"""The page about the architecture names what is there, and all layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "ontolake"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def named_paths(text: str) -> list[str]:
    """Paths in backquotes: they end in `.py` or `/`."""
    return sorted(set(re.findall(r"`([a-z0-9_/]+(?:\.py|/))`", text)))


@pytest.mark.parametrize("path", named_paths(PAGE))
def test_paths_that_the_page_names_are_there(path: str) -> None:
    if path == "store.py":  # of each model
        assert all((SOURCES / model / path).is_file() for model in ("ontology", "documents", "graph", "sql"))
        return
    found = (ROOT if path.startswith(("src/", "tests/")) else SOURCES) / path
    assert found.is_dir() if path.endswith("/") else found.is_file()


def test_the_page_names_every_layer_that_contracts_check() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one for one in contracts if one["id"] == "layers")["layers"]
    names = {name.strip() for layer in layers for name in re.split(r"[|:]", layer)}
    told = {path.removesuffix("/").removesuffix(".py") for path in named_paths(PAGE)}
    helpers = {"__main__", "arrow_keys", "arrow_values", "decoders", "extras", "folders", "foreign", "lazy_pandas"}
    assert names - helpers <= told


def test_links_lead_to_pages() -> None:
    links = re.findall(r"\]\(([^)#]+)", PAGE)
    assert links
    assert all((ROOT / "docs" / link).is_file() for link in links)
