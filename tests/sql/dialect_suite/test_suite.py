"""SQLAlchemy's dialect suite, but for what `ontolake://` does otherwise."""

import pytest
from sqlalchemy.testing.suite import *  # noqa: F403
from sqlalchemy.testing.suite import ArrayTest as _ArrayTest

_NESTED = "arrays have one dimension: JSONB nests"


class ArrayTest(_ArrayTest):
    @pytest.mark.skip(_NESTED)
    def test_array_roundtrip(self) -> None: ...

    @pytest.mark.skip(_NESTED)
    def test_literal_complex(self) -> None: ...
