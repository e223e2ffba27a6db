"""A graph as a picture: one HTML page with drawings of its types and of its commits, which needs nothing else."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from ontolake.history.metadata import BRANCH, KIND

if TYPE_CHECKING:
    from ontolake.graph import Graph
    from ontolake.history import Commit

SHOWN = 60
"""Commits of each branch that are drawn."""

_COLOURS = ("#0d9488", "#7c3aed", "#ea580c", "#2563eb", "#be185d", "#65a30d")
_STYLE = """body{font:15px system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem}
body{color:#1f2937;background:#fff}
svg{max-width:100%;height:auto}text{font:13px system-ui,sans-serif;fill:currentColor}table{border-collapse:collapse}
td,th{text-align:left;padding:.25rem .8rem .25rem 0;border-bottom:1px solid #8884}
@media(prefers-color-scheme:dark){body{background:#111827;color:#e5e7eb}}"""


def picture(graph: Graph) -> str:
    """The page."""
    snapshot = graph.snapshot()
    rows = "".join(f"<tr><td>{escape(kind.table)}</td><td>{snapshot.pins[key].rows}</td><td>"
                   f"{escape(', '.join(field.name for field in kind.fields))}</td></tr>"
                   for key, kind in sorted(snapshot.types.items()))
    return (f"<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
            f"<title>{escape(graph.url)}</title><style>{_STYLE}</style><h1>{escape(graph.url)}</h1>"
            f"<h2>Types</h2>{_types(graph)}<table><tr><th>table<th>rows<th>columns</tr>{rows}</table>"
            f"<h2>Commits</h2>{_commits(graph)}</html>\n")


def _types(graph: Graph) -> str:
    kinds = graph.types().values()
    nodes = sorted(kind.name for kind in kinds if kind.kind == "node")
    radius = 60 + 28 * len(nodes)
    middle = radius + 90
    at = {name: (middle + radius * math.cos(2 * math.pi * n / len(nodes) - math.pi / 2),
                 middle + radius * math.sin(2 * math.pi * n / len(nodes) - math.pi / 2))
          for n, name in enumerate(nodes)}  # fmt: skip
    drawn = []
    for kind in kinds:
        if kind.kind == "edge" and kind.left in at and kind.right in at:
            (x, y), (u, v) = at[kind.left], at[kind.right]
            if kind.left == kind.right:
                drawn.append(f"<path d='M{x - 12:.0f} {y - 18:.0f} C{x - 50:.0f} {y - 80:.0f} {x + 50:.0f} "
                             f"{y - 80:.0f} {x + 12:.0f} {y - 20:.0f}' fill='none' stroke='#888' "
                             "marker-end='url(#a)'/>")
                u, v = x, y - 120
            else:
                length = math.hypot(u - x, v - y) or 1
                dx, dy = (u - x) / length, (v - y) / length
                drawn.append(f"<line x1='{x + 46 * dx:.0f}' y1='{y + 24 * dy:.0f}' x2='{u - 52 * dx:.0f}' "
                             f"y2='{v - 30 * dy:.0f}' stroke='#888' marker-end='url(#a)'/>")
            drawn.append(f"<text x='{(x + u) / 2:.0f}' y='{(y + v) / 2 - 6:.0f}' text-anchor='middle'>"
                         f"{escape(kind.name)} {kind.cardinality}</text>")
    for name, (x, y) in at.items():
        drawn.append(f"<ellipse cx='{x:.0f}' cy='{y:.0f}' rx='52' ry='22' fill='#0d948833' stroke='#0d9488'/>"
                     f"<text x='{x:.0f}' y='{y + 4:.0f}' text-anchor='middle'>{escape(name)}</text>")
    arrow = ("<defs><marker id='a' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='8' markerHeight='8' orient='auto'>"
             "<path d='M0 0L8 4L0 8z' fill='#888'/></marker></defs>")
    size = 2 * middle
    return f"<svg viewBox='0 0 {size} {size}' width='{min(size, 560)}'>{arrow}{''.join(drawn)}</svg>"


def _commits(graph: Graph) -> str:
    """The newest commits, one a line, each branch in a column of its own."""
    branches = [branch.name for branch in graph.branches.list()]
    heads = {branch.head: [] for branch in graph.branches.list()}  # type: dict[str, list[str]]
    found: dict[str, Commit[str]] = {}
    for branch in graph.branches.list():
        heads[branch.head].append(branch.name)
        for number, commit in enumerate(graph.commits(branch=branch.name)):
            if number == SHOWN:
                break
            found[commit.id] = commit
    lines = sorted(found, reverse=True)
    place = {id: (24 + 26 * (branches.index(name) if (name := found[id].metadata[BRANCH]) in branches else 0),
                  20 + 26 * n) for n, id in enumerate(lines)}
    left = 40 + 26 * len(branches)
    drawn = []
    for id in lines:
        x, y = place[id]
        drawn += [f"<path d='M{x} {y}C{x} {y + 14} {place[parent][0]} {place[parent][1] - 14} {place[parent][0]} "
                  f"{place[parent][1]}' fill='none' stroke='#888'/>" for parent in found[id].parents if parent in place]
    for id in lines:
        x, y = place[id]
        commit = found[id]
        names = f" [{', '.join(heads[id])}]" if heads.get(id) else ""
        told = f"{id} {commit.metadata[KIND]}{f' by {commit.author}' if commit.author else ''}{names}"
        drawn.append(f"<circle cx='{x}' cy='{y}' r='6' fill='{_COLOURS[(x - 24) // 26 % len(_COLOURS)]}'>"
                     f"<title>{commit.time}</title></circle><text x='{left}' y='{y + 4}'>{escape(told)}</text>")
    return f"<svg viewBox='0 0 900 {40 + 26 * len(lines)}' width='900'>{''.join(drawn)}</svg>"
