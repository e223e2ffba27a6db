"""One of the processes in a race: run as `racer.py URL PROCESSES CREATES INCREMENTS NUMBER`.

Prints the numbers of the rounds it won, as JSON.
"""

from __future__ import annotations

import json
import sys

from ontolake.errors import AlreadyExists, PreconditionFailed
from ontolake.objects import ObjectStore, create, new_nonce, open_store, replace


def main(url: str, processes: int, creates: int, increments: int, number: int) -> None:
    store = open_store(url)
    store.put(f"ready/{number}", b"")
    while len(list(store.list("ready/"))) < processes:  # so that all are in the race from its first round on
        pass
    print(json.dumps([n for n in range(creates) if won(store, n)]))
    for _ in range(increments):
        while not added_one(store):
            pass


def won(store: ObjectStore, n: int) -> bool:
    nonce = new_nonce()
    try:
        create(store, f"round/{n}", nonce, nonce)
    except AlreadyExists:
        return False
    return True


def added_one(store: ObjectStore) -> bool:
    found = store.get("counter")
    nonce = new_nonce()
    try:
        replace(store, "counter", b"%d " % (int(found.data.split()[0]) + 1) + nonce, found.tag, nonce)
    except PreconditionFailed:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1], *(int(argument) for argument in sys.argv[2:]))
