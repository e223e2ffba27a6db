"""Typed rows as Arrow tables: `fields` checks a column, `rows` and `columns` take tables in, `changes` gives out what
commits did, `physical` has rows as Parquet holds them.
"""
