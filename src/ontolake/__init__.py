"""Data that keeps its history: typed entities, documents, graphs and SQL tables, on a file or a bucket."""

import logging

logging.getLogger("ontolake").addHandler(logging.NullHandler())

__version__ = "0.1.0"
