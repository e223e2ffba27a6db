"""Loads what a graph needs and takes long to load, for programs that fork: once, not in every child.

All but Lance, which must not be loaded before a fork.
"""

from __future__ import annotations

import sqlite3  # noqa: F401
import sys

import pandas  # noqa: F401
import pyarrow.dataset  # noqa: F401

import ontolake.graph
import ontolake.objects.directory  # noqa: F401

assert "lance" not in sys.modules
