"""The base of a merge: the best common ancestor, or where there are several, what merging these gives (as git does).

Values are asked for by key, and only for the keys at hand. Keys on which all best common ancestors agree, which are
nearly all, need no merge; only for the others the bases of the bases are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TypeVar

from ontolake.history.dag import Dag, best_common_ancestors
from ontolake.history.ids import Id

K = TypeVar("K")
V = TypeVar("V")

Read = Callable[[Id, Sequence[K]], Mapping[K, V]]
"""The values of some keys at a commit, every key included."""

Merge = Callable[[V, V, V], V]
"""What becomes of a base, our and their value; conflicts are settled by a value that equals no other."""


def base_values(
    dag: Dag[Id], bases: Sequence[Id], keys: Iterable[K], *, read: Read[Id, K, V], same: Callable[[V, V], bool],
    merge: Merge[V], absent: V,
) -> dict[K, V]:  # fmt: skip
    """The values of keys in the merge of `bases`, which are best common ancestors, oldest first.

    `absent` is the value of a key before the first commit.
    """
    waiting: list[Generator[_Wanted[Id, K], dict[K, V], dict[K, V]]] = [
        _values(dag, bases, list(keys), read, same, merge, absent)
    ]
    answer: dict[K, V] | None = None
    # A stack of our own: histories can be criss-crossed deeper than Python recurses.
    while waiting:
        try:
            wanted = next(waiting[-1]) if answer is None else waiting[-1].send(answer)
        except StopIteration as done:
            waiting.pop()
            answer = done.value
        else:
            waiting.append(_values(dag, *wanted, read, same, merge, absent))
            answer = None
    assert answer is not None
    return answer


_Wanted = tuple[Sequence[Id], list[K]]
"""The bases and the keys of a merge that another one needs first."""


def _values(
    dag: Dag[Id], bases: Sequence[Id], keys: list[K], read: Read[Id, K, V], same: Callable[[V, V], bool],
    merge: Merge[V], absent: V,
) -> Generator[_Wanted[Id, K], dict[K, V], dict[K, V]]:  # fmt: skip
    if not bases or not keys:
        return dict.fromkeys(keys, absent)
    values = dict(read(bases[0], keys))
    for number in range(1, len(bases)):
        theirs = read(bases[number], keys)
        differing = [key for key in keys if not same(values[key], theirs[key])]
        if differing:
            below = best_common_ancestors(dag, bases[:number], bases[number : number + 1])
            origin = yield below, differing
            for key in differing:
                values[key] = merge(origin[key], values[key], theirs[key])
    return values
