"""Pipelines, from their declaration to the report of a run. `Pipeline` itself is in `ontolake.spark`.

Nothing is imported here: `report` and `audit` do without PySpark, which takes its time.
"""
