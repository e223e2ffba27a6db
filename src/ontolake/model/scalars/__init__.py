"""Scalars: one object for each type of single values, with everything that depends on it.

`base` has the class `Scalar` and says what a new scalar has to define; `numbers`, `texts` and `times` have those of
ours; `registry` has the table. Nothing else in the library knows a scalar by its name.
"""

from ontolake.model.scalars.base import UNFIT, Codec, Digits, Scalar
from ontolake.model.scalars.registry import JSON, carried, every, get, jsonable, of, of_value, others, register

__all__ = [
    "JSON", "UNFIT", "Codec", "Digits", "Scalar", "carried", "every", "get", "jsonable", "of", "of_value", "others",
    "register",
]  # fmt: skip
