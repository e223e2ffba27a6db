"""Work on a whole store that workers share: `compaction`, `verification`, `migration`, and what commits wrote
(`commits`); `ranges` has the parts that a store is cut into, `offer` what the repository gives to others."""
