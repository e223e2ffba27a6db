"""Data that keeps its history: typed entities, documents, graphs and SQL tables, on a file or a bucket."""

import logging

from ontolake import lazy_pandas

logging.getLogger("ontolake").addHandler(logging.NullHandler())
lazy_pandas.install()

__version__ = "0.1.0"
