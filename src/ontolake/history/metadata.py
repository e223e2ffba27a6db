"""The keys of `Commit.metadata` that the library itself writes or reads, each under one name.

They are stored, so a key keeps its spelling for ever. Whoever commits may add keys of their own.
"""

from __future__ import annotations

KIND = "kind"
"""What a commit was made for, in a word: `import`, `migration`, `merge`, …"""
AUTHOR = "author"
"""Who made it, where a layout has no other place for that: typed stores give it as `Commit.author`."""
BRANCH = "branch"
"""The branch that it was made on."""

# typed stores
SOURCE = "source"
"""The files of an import."""
MIGRATED_TYPES = "migrated_types"
"""Which types a migration has brought from which schema version to which."""
LEFT_OUT = "left_out"
"""The tables of which a merge did not take all that the source had changed. SQL tables have it, too."""
EVENT = "event"
"""The event that a commit handled: its id and type, and the handler."""

# documents
LOCAL_SEQ = "local_seq"
"""The number that the session has given to the transaction."""
RESOLVED_PENDING_READS = "resolved_pending_reads"
"""The local numbers that reads named, each with the commit that it became."""
SESSION_ID = "session_id"
"""The session that made the transaction, where somebody else is named as its author."""
MERGED = "merged"
"""The branch that a merge of documents took in."""

# graphs
MERGED_BRANCH = "merged_branch"
"""The branch that a merge of a graph took in."""
SCHEMA = "schema"
"""The steps of a change of types."""
RENAMES = "renames"
"""Old and new names of columns, by table."""
RECOVERED = "recovered"
"""What recovery did with an operation that somebody else had begun."""
OPERATION = "operation"
"""The operation that recovery has taken back."""
ORIGINAL_ACTOR = "original_actor"
"""Who had begun it."""
TABLES = "tables"
"""Which version of each table a commit shows. In the stored record only."""
GRAPH_RECORD = ("id", "parent", "merged_parent", BRANCH, "seq", "actor", "created_at", KIND)
"""The fields of the stored record of a commit, which nobody else may use as keys."""
TRACES = "ontolake:traces"
"""Which rows of small changes a commit wrote, by table, and which of their fields. In the stored record only."""
COMMIT = "commit"
"""The id of a commit, where readers in parallel know it by its number."""

# SQL tables
STATEMENT = "statement"
"""The text of the statements."""

# Spark
RUN = "run"
"""The id of the job or the run of a pipeline that published."""
PIPELINE = "pipeline"
"""The name of the pipeline."""
SOURCES = "sources"
"""What a run has read."""
COUNTS = "counts"
"""How many rows a run has read, refused and written, by table."""
DELETED = "deleted"
"""How many rows a run has deleted, by table."""
STREAM = "stream"
"""The name of the stream that published."""
BATCH = "batch"
"""The number of its batch."""

# one history
REVERTS = "reverts"
"""The commit that was reverted."""
CHERRY_PICKED = "cherry_picked"
"""The commit that was picked."""
RESTORES = "restores"
"""The commit whose state was restored."""
ERASED = "erased"
"""What was erased: the table, a salted hash of the key, and how much it was."""
MESSAGE = "message"
"""What was said about a commit, where a layout has no other place for it; given as `Commit.message`."""

# servers
REQUESTS = "requests"
"""The keys of requests that a commit answered, hashed, each with a hash of what was sent."""
