SELECT 'main' AS database, tablename AS name, schemaname AS schema, 'table' AS type FROM pg_tables
WHERE schemaname ILIKE 'public'
UNION ALL
SELECT 'main' AS database, viewname AS name, schemaname AS schema, 'view' AS type FROM pg_views WHERE schemaname ILIKE 'public'
UNION ALL
SELECT 'main' AS database, matviewname AS name, schemaname AS schema, 'materialized_view' AS type FROM pg_matviews
WHERE schemaname ILIKE 'public'
ORDER BY 2;

SELECT count(*) FROM pg_namespace WHERE nspname = 'sales';

SELECT DISTINCT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\_toast%';

SELECT column_name, data_type, character_maximum_length, numeric_precision, numeric_scale
FROM "main".information_schema.columns WHERE table_name = 'book' AND table_schema = 'public' ORDER BY ordinal_position;

WITH relation AS (
    SELECT pg_rewrite.ev_class AS class, pg_rewrite.oid AS id FROM pg_rewrite),
class AS (
    SELECT oid AS id, relname AS name, relnamespace AS schema, relkind AS kind FROM pg_class),
dependency AS (
    SELECT DISTINCT pg_depend.objid AS id, pg_depend.refobjid AS ref FROM pg_depend),
schema AS (
    SELECT pg_namespace.oid AS id, pg_namespace.nspname AS name FROM pg_namespace
    WHERE nspname != 'information_schema' AND nspname NOT LIKE 'pg\_%'),
referenced AS (
    SELECT relation.id AS id, referenced_class.name, referenced_class.schema, referenced_class.kind
    FROM relation
        JOIN class AS referenced_class ON relation.class = referenced_class.id
    WHERE referenced_class.kind IN ('r', 'v', 'm')),
relationships AS (
    SELECT referenced.name AS referenced_name, referenced.schema AS referenced_schema_id,
        dependent_class.name AS dependent_name, dependent_class.schema AS dependent_schema_id
    FROM referenced
        JOIN dependency ON referenced.id = dependency.id
        JOIN class AS dependent_class ON dependency.ref = dependent_class.id
    WHERE dependent_class.kind IN ('r', 'v', 'm')
        AND (referenced.name != dependent_class.name OR referenced.schema != dependent_class.schema))
SELECT referenced_schema.name AS referenced_schema, relationships.referenced_name, dependent_schema.name AS dependent_schema,
    relationships.dependent_name
FROM relationships
    JOIN schema AS dependent_schema ON relationships.dependent_schema_id = dependent_schema.id
    JOIN schema AS referenced_schema ON relationships.referenced_schema_id = referenced_schema.id
GROUP BY referenced_schema, referenced_name, dependent_schema, dependent_name
ORDER BY referenced_schema, referenced_name, dependent_schema, dependent_name;

SELECT i.relname AS name, m.amname AS method, ix.indisunique AS "unique", array_to_string(array_agg(a.attname), ',') AS names
FROM pg_index ix
    JOIN pg_class i ON i.oid = ix.indexrelid
    JOIN pg_am m ON m.oid = i.relam
    JOIN pg_class t ON t.oid = ix.indrelid
    JOIN pg_namespace n ON n.oid = t.relnamespace
    JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = ANY (ix.indkey)
WHERE t.relname = 'author' AND n.nspname = 'public' AND t.relkind IN ('r', 'm')
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
