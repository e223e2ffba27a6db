"""Data that keeps its history: typed entities, documents, graphs and SQL tables, on a file or a bucket."""

__version__ = "0.1.0"
