"""The metadata of a commit: what every store can keep of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ontolake.errors import Invalid
from ontolake.model.codecs import json_text


def metadata_text(metadata: Mapping[str, Any]) -> str:
    """Metadata as JSON. Raises `Invalid` for what is not JSON, and for text that is not Unicode."""
    try:
        text = json_text(dict(metadata))
        text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"the metadata of a commit has text that is not Unicode: {error.reason}") from error
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the metadata of a commit must be JSON: {error}") from error
    return text
