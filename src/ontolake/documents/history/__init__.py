"""The verbs of `ontolake.history` for documents.

`ancestors` reads commits as a DAG, `references` resolves branches, tags, seqs and times. `branches` and `tags` name
commits. `differences` compares two states; `merges` has merge, revert, cherry-pick and restore, with `resolutions` for
conflicts. `authorship` finds the commit behind each field.
"""
