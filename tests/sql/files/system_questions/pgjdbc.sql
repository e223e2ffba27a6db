SELECT NULL AS table_cat, n.nspname AS table_schem, c.relname AS table_name,
    CASE n.nspname ~ '^pg_' OR n.nspname = 'information_schema'
        WHEN true THEN CASE c.relkind WHEN 'r' THEN 'SYSTEM TABLE' WHEN 'v' THEN 'SYSTEM VIEW' ELSE NULL END
        WHEN false THEN CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE' WHEN 'i' THEN 'INDEX'
            WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE NULL END
        ELSE NULL END AS table_type,
    d.description AS remarks, '' AS type_cat, '' AS ref_generation
FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c
    LEFT JOIN pg_catalog.pg_description d ON (c.oid = d.objoid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass)
WHERE c.relnamespace = n.oid AND n.nspname LIKE 'public'
    AND (false OR (c.relkind = 'r' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema') OR (c.relkind = 'v'))
ORDER BY table_type, table_schem, table_name;

SELECT * FROM (
    SELECT n.nspname, c.relname, a.attname, a.atttypid, a.attnotnull OR (t.typtype = 'd' AND t.typnotnull) AS attnotnull,
        a.atttypmod, a.attlen, t.typtypmod, row_number() OVER (PARTITION BY a.attrelid ORDER BY a.attnum) AS attnum,
        nullif(a.attidentity, '') AS attidentity, nullif(a.attgenerated, '') AS attgenerated,
        pg_catalog.pg_get_expr(def.adbin, def.adrelid) AS adsrc, dsc.description, t.typbasetype, t.typtype
    FROM pg_catalog.pg_namespace n
        JOIN pg_catalog.pg_class c ON (c.relnamespace = n.oid)
        JOIN pg_catalog.pg_attribute a ON (a.attrelid = c.oid)
        JOIN pg_catalog.pg_type t ON (a.atttypid = t.oid)
        LEFT JOIN pg_catalog.pg_attrdef def ON (a.attrelid = def.adrelid AND a.attnum = def.adnum)
        LEFT JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
        LEFT JOIN pg_catalog.pg_class dc ON (dc.oid = dsc.classoid AND dc.relname = 'pg_class')
        LEFT JOIN pg_catalog.pg_namespace dn ON (dc.relnamespace = dn.oid AND dn.nspname = 'pg_catalog')
    WHERE c.relkind IN ('r', 'p', 'v', 'f', 'm') AND a.attnum > 0 AND NOT a.attisdropped AND n.nspname LIKE 'public'
        AND c.relname LIKE 'book') c
WHERE true
ORDER BY nspname, c.relname, attnum;

SELECT result.table_schem, result.table_name, result.column_name, result.key_seq, result.pk_name
FROM (
    SELECT NULL AS table_cat, n.nspname AS table_schem, ct.relname AS table_name, a.attname AS column_name,
        (information_schema._pg_expandarray(i.indkey)).n AS key_seq, ci.relname AS pk_name,
        information_schema._pg_expandarray(i.indkey) AS keys, a.attnum AS a_attnum
    FROM pg_catalog.pg_class ct
        JOIN pg_catalog.pg_attribute a ON (ct.oid = a.attrelid)
        JOIN pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid)
        JOIN pg_catalog.pg_index i ON (a.attrelid = i.indrelid)
        JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid)
    WHERE true AND n.nspname = 'sales' AND ct.relname = 'lines' AND i.indisprimary) result
WHERE result.a_attnum = (result.keys).x
ORDER BY result.table_name, result.pk_name, result.key_seq;

SELECT NULL::text AS pktable_cat, pkn.nspname AS pktable_schem, pkc.relname AS pktable_name, pka.attname AS pkcolumn_name,
    fkn.nspname AS fktable_schem, fkc.relname AS fktable_name, fka.attname AS fkcolumn_name, pos.n AS key_seq,
    CASE con.confupdtype WHEN 'c' THEN 0 WHEN 'n' THEN 2 WHEN 'd' THEN 4 WHEN 'r' THEN 1 WHEN 'p' THEN 1 WHEN 'a' THEN 3
        ELSE NULL END AS update_rule,
    CASE con.confdeltype WHEN 'c' THEN 0 WHEN 'n' THEN 2 WHEN 'd' THEN 4 WHEN 'r' THEN 1 WHEN 'p' THEN 1 WHEN 'a' THEN 3
        ELSE NULL END AS delete_rule,
    con.conname AS fk_name, pkic.relname AS pk_name,
    CASE WHEN con.condeferrable AND con.condeferred THEN 5 WHEN con.condeferrable THEN 6 ELSE 7 END AS deferrability
FROM pg_catalog.pg_namespace pkn, pg_catalog.pg_class pkc, pg_catalog.pg_attribute pka, pg_catalog.pg_namespace fkn,
    pg_catalog.pg_class fkc, pg_catalog.pg_attribute fka, pg_catalog.pg_constraint con,
    pg_catalog.generate_series(1, 32) pos(n), pg_catalog.pg_class pkic
WHERE pkn.oid = pkc.relnamespace AND pkc.oid = pka.attrelid AND pka.attnum = con.confkey[pos.n]
    AND con.confrelid = pkc.oid AND fkn.oid = fkc.relnamespace AND fkc.oid = fka.attrelid
    AND fka.attnum = con.conkey[pos.n] AND con.conrelid = fkc.oid AND con.contype = 'f'
    AND (pkic.relkind = 'i' OR pkic.relkind = 'I') AND pkic.oid = con.conindid
ORDER BY pkn.nspname, pkc.relname, con.conname, pos.n;

SELECT tmp.table_schem, tmp.table_name, tmp.non_unique, tmp.index_name, tmp.type, tmp.ordinal_position,
    trim(BOTH '"' FROM pg_catalog.pg_get_indexdef(tmp.ci_oid, tmp.ordinal_position, false)) AS column_name,
    CASE tmp.am_name WHEN 'btree' THEN CASE tmp.i_indoption[tmp.ordinal_position - 1] & 1::smallint
        WHEN 1 THEN 'D' ELSE 'A' END ELSE NULL END AS asc_or_desc,
    tmp.filter_condition
FROM (
    SELECT n.nspname AS table_schem, ct.relname AS table_name, NOT i.indisunique AS non_unique, ci.relname AS index_name,
        CASE i.indisclustered WHEN true THEN 1 ELSE CASE am.amname WHEN 'hash' THEN 2 ELSE 3 END END AS type,
        (information_schema._pg_expandarray(i.indkey)).n AS ordinal_position, ci.oid AS ci_oid,
        i.indoption AS i_indoption, am.amname AS am_name,
        pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS filter_condition
    FROM pg_catalog.pg_class ct
        JOIN pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid)
        JOIN pg_catalog.pg_index i ON (ct.oid = i.indrelid)
        JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid)
        JOIN pg_catalog.pg_am am ON (ci.relam = am.oid)
    WHERE n.nspname = 'public' AND ct.relname = 'book') AS tmp
ORDER BY non_unique, type, index_name, ordinal_position;

SELECT nspname AS table_schem, NULL AS table_catalog FROM pg_catalog.pg_namespace
WHERE nspname <> 'pg_toast' AND (nspname !~ '^pg_temp_' OR nspname = (pg_catalog.current_schemas(true))[1])
    AND (nspname !~ '^pg_toast_temp_'
        OR nspname = replace((pg_catalog.current_schemas(true))[1], 'pg_temp_', 'pg_toast_temp_'))
ORDER BY table_schem;

SELECT typinput = 'pg_catalog.array_in'::regproc AS is_array, typtype, typname, pg_type.oid
FROM pg_catalog.pg_type
    LEFT JOIN (
        SELECT ns.oid AS nspoid, ns.nspname, r.r
        FROM pg_namespace AS ns
            JOIN (SELECT s.r, (current_schemas(false))[s.r] AS nspname
                FROM generate_series(1, array_upper(current_schemas(false), 1)) AS s(r)) AS r USING (nspname)) AS sp
        ON sp.nspoid = typnamespace
WHERE typname = 'mood'
ORDER BY sp.r, pg_type.oid DESC;

SELECT e.typdelim FROM pg_catalog.pg_type t, pg_catalog.pg_type e WHERE t.oid = 1009 AND t.typelem = e.oid;

SELECT n.nspname = ANY(current_schemas(true)), n.nspname, t.typname
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.typname = 'int4';

SELECT t.typlen FROM pg_catalog.pg_type t, pg_catalog.pg_namespace n
WHERE t.typnamespace = n.oid AND t.typname = 'name' AND n.nspname = 'pg_catalog';

SELECT string_agg(word, ',' ORDER BY word) FROM pg_catalog.pg_get_keywords()
WHERE word <> ALL ('{a,abs,absolute,action,ada,add,admin,after,all,allocate,alter}'::text[]);
