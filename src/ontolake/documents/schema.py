"""The tables of a space, and its stamp.

Layout version 1 is the application id and user version of the SQLite header together with the statements below. A
database that carries another stamp is refused, never guessed at. `tag` comes with the first tag. Version 2 is the same
with `branch_name`, and comes with the first branch that is renamed: older versions would call it by its old name.
"""

from __future__ import annotations

from ontolake.documents.errors import SpaceLayoutError
from ontolake.engine.layout import DatabaseLayout

TABLES = """\
CREATE TABLE revision (
  branch TEXT NOT NULL DEFAULT '',
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  op_index INTEGER NOT NULL,
  op TEXT NOT NULL, -- 'set' | 'patch' | 'delete'
  data JSON, -- full document for set, patch list for patch, NULL for delete
  commit_seq INTEGER NOT NULL,
  PRIMARY KEY (branch, id, seq, op_index),
  FOREIGN KEY (commit_seq) REFERENCES "commit"(seq)
);
CREATE INDEX idx_revision_branch_seq ON revision (branch, seq);
CREATE INDEX idx_revision_entity_seq ON revision (branch, id, seq);
CREATE INDEX idx_revision_commit ON revision (commit_seq);
CREATE TABLE head (
  branch TEXT NOT NULL,
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  op_index INTEGER NOT NULL,
  PRIMARY KEY (branch, id)
);
CREATE INDEX idx_head_branch ON head (branch);
CREATE TABLE "commit" (
  seq INTEGER NOT NULL PRIMARY KEY,
  branch TEXT NOT NULL DEFAULT '',
  session_id TEXT NOT NULL,
  local_seq INTEGER NOT NULL,
  invocation_ref TEXT,
  authorization_ref TEXT,
  original JSON NOT NULL,
  resolution JSON NOT NULL,
  created_at TEXT NOT NULL DEFAULT (datetime('now')),
  FOREIGN KEY (invocation_ref) REFERENCES invocation(ref),
  FOREIGN KEY (authorization_ref) REFERENCES authorization(ref)
);
CREATE INDEX idx_commit_branch ON "commit" (branch);
CREATE UNIQUE INDEX idx_commit_session_local_seq ON "commit" (session_id, local_seq);
CREATE INDEX idx_commit_invocation_ref ON "commit" (invocation_ref);
CREATE TABLE snapshot (
  branch TEXT NOT NULL DEFAULT '',
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  value JSON NOT NULL,
  PRIMARY KEY (branch, id, seq)
);
CREATE INDEX idx_snapshot_lookup ON snapshot (branch, id, seq);
CREATE TABLE branch (
  name TEXT NOT NULL PRIMARY KEY,
  parent_branch TEXT,
  fork_seq INTEGER,
  created_seq INTEGER NOT NULL,
  head_seq INTEGER NOT NULL,
  created_at TEXT NOT NULL DEFAULT (datetime('now')),
  status TEXT NOT NULL DEFAULT 'active'
);
CREATE INDEX idx_branch_status ON branch (status);
CREATE INDEX idx_branch_parent ON branch (parent_branch);
CREATE TABLE invocation (
  ref TEXT NOT NULL PRIMARY KEY,
  iss TEXT NOT NULL,
  aud TEXT,
  cmd TEXT NOT NULL,
  sub TEXT NOT NULL,
  invocation JSON NOT NULL,
  created_at TEXT NOT NULL DEFAULT (datetime('now'))
);
CREATE INDEX idx_invocation_sub ON invocation (sub);
CREATE INDEX idx_invocation_cmd ON invocation (cmd);
CREATE INDEX idx_invocation_iss ON invocation (iss);
CREATE TABLE authorization (
  ref TEXT NOT NULL PRIMARY KEY,
  authorization JSON NOT NULL,
  created_at TEXT NOT NULL DEFAULT (datetime('now'))
);
CREATE TABLE blob_store (
  hash TEXT NOT NULL PRIMARY KEY,
  data BLOB NOT NULL,
  content_type TEXT,
  size INTEGER NOT NULL,
  created_at TEXT NOT NULL DEFAULT (datetime('now'))
);
CREATE VIEW state AS
SELECT branch, id, seq, op_index FROM head;
"""

TAG = """\
CREATE TABLE tag (
  name TEXT NOT NULL PRIMARY KEY,
  branch TEXT NOT NULL, -- where the commit was made
  seq INTEGER NOT NULL,
  message TEXT,
  created_at TEXT NOT NULL DEFAULT (datetime('now')),
  FOREIGN KEY (seq) REFERENCES "commit"(seq)
)"""

BRANCH_NAME = """\
CREATE TABLE branch_name (
  line TEXT NOT NULL PRIMARY KEY, -- branch.name: what the branch was called when it was made
  name TEXT NOT NULL,
  FOREIGN KEY (line) REFERENCES branch(name)
)"""

_FIRST_BRANCH = "INSERT INTO branch (name, created_seq, head_seq) VALUES ('', 0, 0)"

_APPLICATION_ID = 0x6F6E7464  # "ontd"
VERSION_WITH_NAMES = 2
LAYOUT = DatabaseLayout(_APPLICATION_ID, VERSION_WITH_NAMES, 32768, TABLES + _FIRST_BRANCH, "a space of documents",
                        SpaceLayoutError, new_version=1)
