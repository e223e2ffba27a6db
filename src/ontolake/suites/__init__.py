"""What the conformance suites of the seam and of history share: running from a program, and other processes.

`runs` runs a suite in a place of its own that is removed in the end. `peers` are others who use the same store;
`child` is the process that forks them. pytest is needed only when something is run.
"""

from ontolake.suites.runs import CaseResult, OnResult, Scratch, need_pytest, run_file, scratch

__all__ = ["CaseResult", "OnResult", "Scratch", "need_pytest", "run_file", "scratch"]
