"""PostgreSQL's protocol: what drivers, BI tools and psql speak with a store."""
