"""Typed stores on objects, engines s3/v1 and s3/v2: Parquet files, a chain of manifests and a head that is swapped."""
