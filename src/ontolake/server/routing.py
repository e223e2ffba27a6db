"""Finds the route of a path: a tree of its segments, so that the number of routes does not matter.

Paths have literal segments, parameters such as `{store}` for one segment, and at their end perhaps one such as
`{name:path}` for all that is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ontolake.server.routes import Route

_REST = ":path}"


class _Target(NamedTuple):
    """A route, and the names of the parameters in its path."""

    route: Route
    names: tuple[str, ...]


class _Node:
    """The routes whose paths begin in one way."""

    __slots__ = ("ends", "literal", "parameter", "rest")

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.rest: dict[str, _Target] = {}
        """By method: routes that take all segments that are left."""
        self.ends: dict[str, _Target] = {}
        """By method: routes whose path ends here."""


class RouteMatch(NamedTuple):
    """What is at a path: the route of the method and its parameters. `route` is None if only others of `methods`
    are."""

    route: Route | None
    path: Mapping[str, str]
    methods: Sequence[str]


class RouteTree:
    """Routes by path and method. GET also answers HEAD."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node, names = self._root, []
        methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
        for part in route.address.split("/")[1:]:
            if part.endswith(_REST):
                names.append(part[1 : -len(_REST)])
                node.rest |= dict.fromkeys(methods, _Target(route, tuple(names)))
                return
            if part.startswith("{"):
                names.append(part[1:-1])
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.literal.setdefault(part, _Node())
        node.ends |= dict.fromkeys(methods, _Target(route, tuple(names)))

    def find(self, path: str, method: str) -> RouteMatch | None:
        """What is at a path; None if nothing is."""
        found = _walk(self._root, path.split("/")[1:], 0, ())
        if found is None:
            return None
        targets, values = found
        target = targets.get(method)
        if target is None:
            return RouteMatch(None, {}, tuple(targets))
        return RouteMatch(target.route, dict(zip(target.names, values, strict=True)), ())


def _walk(
    node: _Node, parts: Sequence[str], place: int, values: tuple[str, ...]
) -> tuple[Mapping[str, _Target], tuple[str, ...]] | None:  # fmt: skip
    """The routes at the end of a path, and the values of its parameters. Literal segments come first."""
    if place == len(parts):
        return (node.ends, values) if node.ends else None
    part = parts[place]
    found = None
    if (literal := node.literal.get(part)) is not None:
        found = _walk(literal, parts, place + 1, values)
    if found is None and node.parameter is not None and part:
        found = _walk(node.parameter, parts, place + 1, (*values, part))
    if found is None and node.rest and part:
        found = node.rest, (*values, "/".join(parts[place:]))
    return found
