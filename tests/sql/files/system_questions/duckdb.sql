SELECT version(), (SELECT count(*) FROM pg_settings WHERE name LIKE 'rds%') > 0 AS is_rds;

SELECT pg_is_in_recovery(), (SELECT count(*) FROM pg_stat_wal_receiver);

SELECT oid, nspname FROM pg_namespace WHERE nspname NOT IN ('pg_toast') ORDER BY nspname;

SELECT pg_namespace.oid AS namespace_id, relname, attname, pg_type.typname AS type_name, atttypmod AS type_modifier,
    pg_attribute.attndims AS ndim, attnum, pg_attribute.attnotnull AS notnull, NULL AS constraint_id,
    NULL AS constraint_type, NULL AS constraint_key
FROM pg_class
    JOIN pg_namespace ON relnamespace = pg_namespace.oid
    JOIN pg_attribute ON pg_class.oid = pg_attribute.attrelid
    JOIN pg_type ON atttypid = pg_type.oid
WHERE attnum > 0 AND relkind IN ('r', 'v', 'm', 'f', 'p') AND pg_namespace.nspname IN ('public', 'sales')
UNION ALL
SELECT pg_namespace.oid AS namespace_id, relname, NULL AS attname, NULL AS type_name, NULL AS type_modifier, NULL AS ndim,
    NULL AS attnum, NULL AS notnull, pg_constraint.oid AS constraint_id, contype AS constraint_type,
    conkey AS constraint_key
FROM pg_class
    JOIN pg_namespace ON relnamespace = pg_namespace.oid
    JOIN pg_constraint ON (pg_class.oid = pg_constraint.conrelid)
WHERE relkind IN ('r', 'v', 'm', 'f', 'p') AND contype IN ('p', 'u') AND pg_namespace.nspname IN ('public', 'sales')
ORDER BY namespace_id, relname, attnum, constraint_id;

SELECT n.oid, t.typtype AS type, t.typname AS enum_name, e.enumlabel
FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid JOIN pg_namespace n ON n.oid = t.typnamespace
ORDER BY n.oid, enum_name, e.enumsortorder;

SELECT pg_namespace.oid, tablename, indexname FROM pg_indexes JOIN pg_namespace ON (schemaname = nspname)
WHERE schemaname IN ('public', 'sales') ORDER BY pg_namespace.oid;

SELECT n.oid, t.typrelid AS id, t.typname AS type, pg_attribute.attname, sub_type.typname
FROM pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
    JOIN pg_class ON pg_class.oid = t.typrelid
    JOIN pg_attribute ON attrelid = t.typrelid
    JOIN pg_type sub_type ON (pg_attribute.atttypid = sub_type.oid)
WHERE pg_class.relkind = 'c' AND t.typtype = 'c' ORDER BY n.oid, t.oid, attrelid, attnum;

SELECT current_setting('server_version_num')::int / 10000
