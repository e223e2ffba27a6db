"""The types that stored data is read as, learned before threads can meet them.

msgspec works out what a type is made of when it first decodes one, and the process ends if two threads have it do so at
the same time. So a module that decodes types of its own has them learned while it is imported.
"""

from __future__ import annotations

import threading

import msgspec

_one_at_a_time = threading.Lock()


def learn(*kinds: type) -> None:
    """Have msgspec work out these types, and all that they are made of."""
    with _one_at_a_time:
        for kind in kinds:
            msgspec.json.Decoder(kind)
