"""Random histories against the oracle: any mixture of steps, valid or not, gives the same answers."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from ontolake.storage.conformance.base import Base, Fresh
from ontolake.storage.conformance.observe import difference
from ontolake.storage.conformance.workload import MISUSE, WEIGHTS, Op, Player, oracle_player, spell
from ontolake.storage.protocol import Storage

RARE = [kind for kind in WEIGHTS if kind not in ("flush", "append", "branch")]
KINDS = ["flush", *["append"] * 5, *["branch"] * 3, *RARE, *MISUSE]
"""The first does nothing: what a failing history does not need shrinks to it."""

STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.binary(min_size=12, max_size=12)), min_size=25, max_size=50)
"""Long enough that a quarter of them finds a fault that needs four steps to come together."""


class HistoryCases(Base):
    """Whole programs, made up and shrunk by Hypothesis."""

    title = "Histories"
    shrink_histories: ClassVar[bool] = True
    """Whether a failing history is made as short as possible, which takes a while."""

    def test_random_histories_match_the_oracle(self, fresh: Fresh) -> None:
        """Writes, branches, fences, floors, compactions and reopens: each outcome, and everything that can be
        read in the end and after one more reopen, is the oracle's."""

        @settings(
            max_examples=self.history_examples,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate, Phase.shrink] if self.shrink_histories else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(steps=STEPS)
        def check(steps: list[tuple[str, bytes]]) -> None:
            ops = spell([("acquire", b""), *steps], self.page_size)
            note(f"steps: {ops}")
            self._check_history(fresh(), ops)

        check()

    def _check_history(self, where: str, ops: list[Op]) -> None:
        opened: list[Storage] = []

        def opener() -> Storage:
            opened.append(self.connect(where, **self.sweep_knobs))
            return opened[-1]

        try:
            player, oracle = Player(opener), oracle_player(self.page_size)
            for i, op in enumerate(ops):
                found, expected = player.do(op), oracle.do(op)
                assert found == expected, f"step {i}, {op}: found {found}, the oracle says {expected}"
            expected_end = self.observe(oracle.storage)
            assert difference(self.observe(player.storage), expected_end) is None
            player.do(Op("reopen"))
            assert difference(self.observe(player.storage), expected_end) is None
            player.do(Op("compact"))
            assert difference(self.observe(player.storage), expected_end) is None
        finally:
            for storage in opened:
                storage.close()
