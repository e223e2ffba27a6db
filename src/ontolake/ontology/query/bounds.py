"""Bounds that callers give: numbers of rows, and commits, which must be there."""

from __future__ import annotations

from typing import Any

from ontolake.ontology.errors import QueryError, UnknownCommitError
from ontolake.ontology.repository.protocol import Repository


def natural(number: Any, what: str) -> int:
    """A number of rows or commits. Raises `QueryError` for anything else."""
    if commit_number(number, what) >= 2**63:
        raise QueryError(f"{what} takes a number below 2**63, not {number!r}")
    return int(number)


def commit_number(number: Any, what: str) -> int:
    """The id of a commit, which may not be there. Raises `QueryError` for what no commit can be called."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise QueryError(f"{what} takes a number from 0 on, not {number!r}")
    return number


def check_commits(repository: Repository, *commits: int | None) -> None:
    """Raise `UnknownCommitError` if one of these, which are numbers from 0 on, lies beyond the head.

    Commits stay, so the head is only looked at if it was not seen to be that far yet.
    """
    for commit in commits:
        if commit is not None and commit > repository.seen_head:
            repository.seen_head = repository.highest()
            if commit > repository.seen_head:
                raise UnknownCommitError(commit, repository.seen_head)
