SELECT db.oid, db.datname FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate AND datname = 'main';

SELECT n.oid, n.nspname, d.description FROM pg_catalog.pg_namespace n
    LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = n.oid AND d.objsubid = 0
        AND d.classoid = 'pg_namespace'::regclass
ORDER BY nspname;

SELECT c.oid, c.relname, c.relkind, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr,
    pg_catalog.pg_get_partkeydef(c.oid) AS partition_key
FROM pg_catalog.pg_class c
    LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
WHERE c.relnamespace = 2200 AND c.relkind NOT IN ('i', 'I', 'c');

SELECT c.relname, a.attname, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, dsc.description, dep.objid
FROM pg_catalog.pg_attribute a
    INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid)
    LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum)
    LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
    LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum
        AND dep.classid = dep.refclassid
WHERE NOT a.attisdropped AND c.relkind NOT IN ('i', 'I', 'c') AND c.oid = {c author} AND a.attnum > 0
ORDER BY a.attnum;

SELECT c.conname, c.contype, c.conkey, c.confkey, t.relname AS tabrelname, rt.relnamespace AS refnamespace,
    d.description, pg_catalog.pg_get_constraintdef(c.oid) AS definition
FROM pg_catalog.pg_constraint c
    INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
    LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid
    LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0
        AND d.classoid = 'pg_constraint'::regclass
WHERE c.conrelid = {c book} ORDER BY c.conname;

SELECT i.indkey, i.indisunique, c.relname, c.relnamespace, c.relam, tc.relname AS tabrelname, dsc.description,
    pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr,
    pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr, pg_catalog.pg_relation_filenode(c.oid) > 0 AS has_file
FROM pg_catalog.pg_index i
    INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid
    LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid = dsc.objoid
WHERE i.indrelid = {c book} ORDER BY tabrelname, c.relname;

SELECT t.oid, t.typname, c.relkind, pg_catalog.format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base_type_name
FROM pg_catalog.pg_type t
    LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem
    LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C')
    AND t.typnamespace = 2200;

SELECT e.enumlabel FROM pg_catalog.pg_enum e WHERE e.enumtypid = {t mood} ORDER BY e.enumsortorder;

SELECT current_schema(), session_user;

SHOW search_path;

SELECT s.name, s.unit, s.vartype FROM pg_catalog.pg_settings s WHERE name = 'standard_conforming_strings';

SELECT word, catcode, catdesc FROM pg_get_keywords() WHERE catcode = 'R' ORDER BY word;

SELECT s.relname, p.seqstart, p.seqincrement, p.seqmax, p.seqcycle
FROM pg_catalog.pg_class s JOIN pg_catalog.pg_sequence p ON p.seqrelid = s.oid WHERE s.relnamespace = 2200;

SELECT DISTINCT dep.deptype, dep.classid::regclass, cl.relname
FROM pg_depend dep JOIN pg_class cl ON dep.objid = cl.oid AND cl.relkind = 'S'
WHERE dep.refclassid = 'pg_class'::regclass AND cl.relnamespace = 2200;
