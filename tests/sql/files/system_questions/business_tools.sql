SELECT "table_schema" AS "schema", "table_name" AS "name", obj_description(format('%s.%s', quote_ident(table_schema),
    quote_ident(table_name))::regclass::oid, 'pg_class') AS description
FROM information_schema.tables WHERE table_schema NOT IN ('information_schema', 'pg_catalog') ORDER BY 1, 2;

SELECT c.column_name AS name, CASE WHEN c.udt_schema IN ('public', 'pg_catalog') THEN format('%s', c.udt_name)
        ELSE format('"%s"."%s"', c.udt_schema, c.udt_name) END AS database_type, c.ordinal_position - 1 AS place,
    c.table_schema AS table_schema, c.table_name AS table_name, pk.column_name IS NOT NULL AS is_key,
    col_description(cast(cast(format('%I.%I', cast(c.table_schema AS text), cast(c.table_name AS text)) AS regclass) AS oid),
        c.ordinal_position) AS comment,
    (c.column_default IS NULL OR lower(c.column_default) = 'null') AND (c.is_nullable = 'NO')
        AND NOT ((c.column_default IS NOT NULL AND c.column_default LIKE '%nextval(%') OR c.is_identity <> 'NO') AS required,
    (c.column_default IS NOT NULL AND c.column_default LIKE '%nextval(%') OR c.is_identity <> 'NO' AS counted
FROM information_schema.columns AS c
    LEFT JOIN (SELECT tc.table_schema, tc.table_name, kc.column_name
        FROM information_schema.table_constraints AS tc
            INNER JOIN information_schema.key_column_usage AS kc ON tc.constraint_name = kc.constraint_name
                AND tc.table_schema = kc.table_schema AND tc.table_name = kc.table_name
        WHERE tc.constraint_type = 'PRIMARY KEY') AS pk
        ON c.table_schema = pk.table_schema AND c.table_name = pk.table_name AND c.column_name = pk.column_name
WHERE c.table_schema !~ '^information_schema|catalog_history|pg_' AND c.table_schema IN ('public', 'sales')
ORDER BY c.table_schema, c.table_name, c.ordinal_position;

SELECT fk_ns.nspname AS fk_schema, fk_table.relname AS fk_table, fk_column.attname AS fk_column,
    pk_ns.nspname AS pk_schema, pk_table.relname AS pk_table, pk_column.attname AS pk_column
FROM pg_constraint AS c
    INNER JOIN pg_class AS fk_table ON c.conrelid = fk_table.oid
    INNER JOIN pg_namespace AS fk_ns ON c.connamespace = fk_ns.oid
    INNER JOIN pg_attribute AS fk_column ON c.conrelid = fk_column.attrelid
    INNER JOIN pg_class AS pk_table ON c.confrelid = pk_table.oid
    INNER JOIN pg_namespace AS pk_ns ON pk_table.relnamespace = pk_ns.oid
    INNER JOIN pg_attribute AS pk_column ON c.confrelid = pk_column.attrelid
WHERE fk_ns.nspname !~ '^information_schema|catalog_history|pg_' AND c.contype = 'f'::char
    AND fk_column.attnum = ANY (c.conkey) AND pk_column.attnum = ANY (c.confkey)
ORDER BY fk_schema, fk_table;

WITH table_privileges AS (
    SELECT NULL AS role, t.schemaname AS schema, t.objectname AS table,
        pg_catalog.has_table_privilege(current_user, '"' || t.schemaname || '"' || '.' || '"' || t.objectname || '"', 'UPDATE')
            AS update,
        pg_catalog.has_table_privilege(current_user, '"' || t.schemaname || '"' || '.' || '"' || t.objectname || '"', 'SELECT')
            AS select
    FROM (
        SELECT schemaname, tablename AS objectname FROM pg_catalog.pg_tables
        UNION
        SELECT schemaname, viewname AS objectname FROM pg_catalog.pg_views
        UNION
        SELECT schemaname, matviewname AS objectname FROM pg_catalog.pg_matviews) t
    WHERE t.schemaname !~ '^pg_' AND t.schemaname <> 'information_schema'
        AND pg_catalog.has_schema_privilege(current_user, t.schemaname, 'USAGE'))
SELECT t.* FROM table_privileges t ORDER BY 2, 3;

SELECT CASE WHEN quote_ident(table_schema) IN (
        SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
        FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1),
            array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i,
            string_to_array(current_setting('search_path'), ',') s)
    THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table"
FROM information_schema.tables
WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', '_timescaledb_cache')
ORDER BY 1;

SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns
WHERE quote_ident(table_name) = 'book' AND table_schema = 'public' ORDER BY ordinal_position;

SELECT ns.nspname, t.oid, t.typname, t.typtype, t.typnotnull, t.elemtypoid
FROM (
    SELECT typ.oid, typ.typnamespace, typ.typname, typ.typtype, typ.typrelid, typ.typnotnull, typ.relkind,
        elemtyp.oid AS elemtypoid, elemtyp.typname AS elemtypname, elemcls.relkind AS elemrelkind,
        CASE WHEN elemproc.proname = 'array_recv' THEN 'a' ELSE elemtyp.typtype END AS elemtyptype
    FROM (
        SELECT typ.oid, typnamespace, typname, typrelid, typnotnull, relkind, typelem AS elemoid,
            CASE WHEN proc.proname = 'array_recv' THEN 'a' ELSE typ.typtype END AS typtype,
            CASE WHEN proc.proname = 'array_recv' THEN typ.typelem WHEN typ.typtype = 'r' THEN rngsubtype
                WHEN typ.typtype = 'd' THEN typ.typbasetype END AS elemtypoid
        FROM pg_type AS typ
            LEFT JOIN pg_class AS cls ON (cls.oid = typ.typrelid)
            LEFT JOIN pg_proc AS proc ON proc.oid = typ.typreceive
            LEFT JOIN pg_range ON (pg_range.rngtypid = typ.oid)) AS typ
        LEFT JOIN pg_type AS elemtyp ON elemtyp.oid = elemtypoid
        LEFT JOIN pg_class AS elemcls ON (elemcls.oid = elemtyp.typrelid)
        LEFT JOIN pg_proc AS elemproc ON elemproc.oid = elemtyp.typreceive) AS t
    JOIN pg_namespace AS ns ON (ns.oid = typnamespace)
WHERE ns.nspname = 'public' AND (typtype IN ('b', 'r', 'm', 'e', 'd')
    OR (typtype = 'c' AND relkind = 'c') OR (typtype = 'a' AND (elemtyptype IN ('b', 'r', 'm', 'e', 'd'))))
ORDER BY CASE WHEN typtype IN ('b', 'e', 'p') THEN 0 WHEN typtype = 'r' THEN 1 WHEN typtype = 'c' THEN 3 ELSE 6 END, typname;

SELECT tc.constraint_name, kcu.column_name, ccu.table_name AS foreign_table, ccu.column_name AS foreign_column
FROM information_schema.table_constraints AS tc
    JOIN information_schema.key_column_usage AS kcu ON tc.constraint_name = kcu.constraint_name
    JOIN information_schema.constraint_column_usage AS ccu ON ccu.constraint_name = tc.constraint_name
WHERE tc.constraint_type = 'FOREIGN KEY' ORDER BY 1, 2;

SELECT constraint_name, unique_constraint_name, match_option, update_rule, delete_rule
FROM information_schema.referential_constraints ORDER BY 1;

SELECT table_name, view_definition, is_updatable FROM information_schema.views
WHERE table_schema IN ('public', 'sales') ORDER BY 1;

SELECT * FROM information_schema.sequences ORDER BY sequence_name;

SELECT schema_name FROM information_schema.schemata WHERE schema_name NOT LIKE 'pg\_%' ORDER BY 1;

SELECT column_name, data_type, is_nullable, character_maximum_length, character_octet_length, numeric_precision,
    numeric_precision_radix, numeric_scale, datetime_precision, column_default, udt_schema, udt_name, is_identity,
    identity_generation, identity_start, identity_maximum, is_generated, generation_expression, is_updatable
FROM information_schema.columns WHERE table_schema IN ('public', 'sales') ORDER BY table_name, ordinal_position
