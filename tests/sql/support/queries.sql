select 1, 1.5, 'a', null, true, -3, 2147483648, 9223372036854775808
select 1.0/3, 100000/3.0, 1/3.0, 2/3.0, 10.0/4, 0.001/7, 123456789.5/0.3
select 7/2, -7/2, 7%3, -7%3, 2^10, 5.5%2, 7.0/2
select 1::smallint + 1::smallint, 1::smallint + 1, 1 + 1::bigint, 1.5 + 1, 1.5::float8 + 1, 1.5::real + 1.5::real, 1.5::real + 1
select 2147483647 + 1
select 32767::smallint + 1::smallint
select 9223372036854775807 + 1
select 10/0
select 1.5/0
select 1::float8/0
select i from t where i <> 0 and 10/i > 1 order by id
select sum(i), sum(b), sum(n), sum(f), avg(i), avg(b), avg(n), avg(f), count(*), count(i), min(s), max(d) from t
select g, sum(i), avg(n), count(distinct i) from t group by g order by g
select id, s, count(*) from t group by id order by id
select s, count(*) from t group by g
select t.id, u.v, count(*) from t join u on t.id = u.tid group by t.id, u.v order by 1, 2
select i, count(*) from t
select sum(i) over (order by id), avg(i) over (partition by g order by id), rank() over w, lag(i, 1, 0) over w from t window w as (order by i desc nulls last, id) order by id
select sum(i) over w, first_value(id) over (w rows between unbounded preceding and unbounded following) from t window w as (partition by g order by id) order by id
select id from t where i = any (select i from u join t t2 on t2.id = u.tid) order by id
select id from t where i > all (select v from u where v < 3) order by id
select id from t where i <> all (select v from u) order by id
select id, i in (select v from u), i not in (select v from u), (i in (select v from u)) is null from t order by id
select id from t where i not in (select v from u) or id = 1 order by id
select (i, g) in (select v, 'x' from u) from t order by id
select (1, null) = (1, null), (1, 2) < (1, 3), (1, null) < (2, null), (1, null) <> (2, 3), row(1, 2) is null
select id from t where (i, g) = (10, 'x') order by id
select * from t1 full join t2 using (a)
select * from t1 right join t2 using (a)
select a, b, c from t1 full join t2 using (a) where a > 1
select * from t1 natural join t2
select a from t1 except all select a from t2 order by 1
select a from t1 intersect all select a from t2 order by 1
select a from t1 union select a from t2 order by 1 desc
(select a from t1 order by a limit 1) union all select 7 order by 1
select f + n, f * n, f = n, n + 1.5::float8 from t order by id
select interval '1 day 02:03', interval '3 days ago', interval '1-2', interval '1.5 days', interval '90' minute, interval '1 year 2 months 3 days 04:05:06.5'
select interval '1 day' * 2.5, interval '1 month' / 2, interval '1 day' + interval '2 hours', - interval '1 day', interval '1 month 1 day' * 1.5
select (interval '1 day 02:03')::text, (interval '-1 year 2 days')::text, (interval '0')::text, (interval '1 mon -1 day')::text
select extract(second from timestamp '2020-01-02 03:04:05.678'), extract(epoch from timestamp '2020-01-02 03:04:05.678'), extract(year from date '2020-01-02'), extract(dow from date '2020-01-05'), extract(isodow from date '2020-01-05'), extract(week from date '2021-01-01'), extract(milliseconds from timestamp '2020-01-02 03:04:05.678'), extract(quarter from date '2020-05-05'), extract(doy from date '2020-12-31')
select date_part('hour', timestamp '2020-01-02 03:04:05'), date_part('epoch', interval '1 day 1 hour'), extract(day from interval '3 days 4 hours')
select date_trunc('month', timestamp '2020-03-15 10:11:12'), date_trunc('week', date '2020-03-15'), date_trunc('hour', timestamptz '2020-03-15 10:11:12+02')
select date '2020-01-31' + interval '1 month', date '2020-01-31' + 1, date '2020-03-01' - date '2020-02-01', timestamp '2020-03-01 12:00' - timestamp '2020-02-01 10:00', date '2020-01-01' - 3
select timestamp '2020-01-01 10:00' + interval '36 hours', time '10:00' + interval '3 hours', time '10:00' - time '08:30', date '2020-01-01' + time '10:00'
select age(timestamp '2020-03-15', timestamp '2019-01-20'), age(date '2020-01-01', date '1990-12-31')
select d::text, ts::text, n::text, f::text, i::text, bo::text from t order by id
select 1e15::float8::text, 0.1::float8::text, 1e-5::float8::text, 123456789012345678::float8::text, 'NaN'::float8::text, 1.5::real::text, 1e20::float8
select '\x6162'::bytea, 'abc'::bytea = '\x616263', length('\x616263'::bytea), encode('\x616263', 'base64'), encode('\x616263', 'hex'), convert_from('\x616263', 'UTF8')
select '42'::int, ' 7 '::int, '1.5'::numeric, 't'::bool, 'yes'::bool, '2020-01-01'::date, '10:30'::time, '2020-01-01 10:00'::timestamp
select 'x'::int
select '1.5'::int
select s::int from t
select 1.5::int, 2.5::int, -2.5::int, 2.5::float8::int, 3.5::float8::int, 1e10::int
select 3.7::numeric(3,1), 3.75::numeric(3,1), 12345.6::numeric(5,0), 99.99::numeric(3,1)
select 'abcdef'::varchar(3), 'ab'::char(5) || 'x', 'ab'::char(5) = 'ab', length('ab '::char(5))
select round(2.5), round(3.5), round(-2.5), round(2.567, 2), round(1234.5, -2), round(2.5::float8), round(3.5::float8), trunc(2.567, 2), trunc(-2.7), ceil(2.1), floor(-2.1), ceil(2.1::float8)
select abs(-5), abs(-5.5), sign(-2.5), mod(7, 3), mod(-7.5, 2), div(7, 2), power(2, 3), power(2.0, 3), sqrt(16), sqrt(2.0::float8), cbrt(27.0::float8), exp(0), ln(1), log(100), pi()
select ln(0)
select sqrt(-1)
select greatest(1, 2.5, null), least(3, 1), coalesce(null, 1, 2), nullif(1, 1), nullif(1, 2), greatest('a', 'b')
select upper('aBc'), lower('aBc'), initcap('hello wORLD-foo'), length('häuser'), char_length('abc'), octet_length('ä'), reverse('abc'), repeat('ab', 3)
select substr('abcdef', 2, 3), substr('abcdef', -1, 4), substring('abcdef' from 2), substring('abcdef' from 0 for 3), substring('abc123' from '[0-9]+'), left('abc', -1), right('abc', 2)
select lpad('ab', 5), lpad('ab', 5, 'xy'), rpad('ab', 5, 'x'), lpad('abcdef', 3), trim('  a '), ltrim('xxa', 'x'), rtrim('axx', 'x'), btrim('xax', 'x'), trim(both 'x' from 'xax')
select position('b' in 'abc'), strpos('abc', 'z'), replace('aaa', 'a', 'b'), translate('abc', 'ab', 'x'), split_part('a,b,c', ',', 2), split_part('a,b,c', ',', -1), split_part('a,b', ',', 5), ascii('a'), chr(65), md5('a')
select concat('a', null, 1, true), concat_ws(',', 'a', null, 'b'), 'a' || 1, 1 || 'a', 'a' || null, format('%s-%I-%L', 'x', 'Y', 'z'), format('%2$s %1$s', 'a', 'b')
select overlay('abcdef' placing 'XX' from 2 for 3), starts_with('abc', 'ab'), to_hex(255), quote_literal('a''b'), quote_ident('a b'), bit_length('abc')
select 'abc' like 'a%', 'a_c' like 'a\_c', 'abc' like 'a\_c', 'a%c' like 'a!%c' escape '!', 'ABC' ilike 'a%', 'abc' not like 'b%', 'abc' similar to '(a|b)%', 'abc' ~ '^a.c$', 'ABC' ~* 'abc', 'abc' !~ 'z'
select regexp_replace('abcabc', 'b', 'X'), regexp_replace('abcabc', 'b', 'X', 'g'), regexp_replace('abc', '(a)(b)', '\2\1'), regexp_match('abc123', '([a-z]+)([0-9]+)'), regexp_split_to_array('a1b2c', '[0-9]')
select * from regexp_matches('a1b2', '([a-z])([0-9])', 'g')
select regexp_split_to_table('a b c', ' ')
select to_char(timestamp '2020-03-05 14:05:06.789', 'YYYY-MM-DD HH24:MI:SS.MS'), to_char(date '2020-03-05', 'Day, DD Mon YYYY'), to_char(timestamp '2020-03-05 14:05', 'FMDay HH12:MI AM'), to_char(date '2020-03-05', 'DDth FMMonth, Q IW')
select to_char(1234.5, '9,999.99'), to_char(-5, '999'), to_char(5, '000'), to_char(0.5, '0.00'), to_char(1234567, 'FM9,999,999'), to_char(12.345, 'FM990.0'), to_char(485, 'RN'), to_char(-12, 'S99'), to_char(12, '99MI')
select to_date('05 Mar 2020', 'DD Mon YYYY'), to_timestamp('2020-03-05 14:05', 'YYYY-MM-DD HH24:MI'), to_timestamp(0), to_number('1,234.5', '9,999.9')
select make_date(2020, 2, 3), make_timestamp(2020, 2, 3, 4, 5, 6.5), make_interval(days => 3, hours => 2)
select timestamptz '2020-01-01 10:00+02', timestamp '2020-01-01 10:00' at time zone 'Europe/Berlin', timestamptz '2020-07-01 10:00+00' at time zone 'America/New_York'
select x from generate_series(1, 5, 2) x
select * from generate_series(timestamp '2020-01-01', timestamp '2020-01-02', interval '12 hours') g
select generate_series(1, 3), 'a'
select count(*) from generate_series(1, 1000) a, generate_series(1, 10) b where a % b = 0
select array[1,2,3], (array[1,2,3])[2], array[1,2] || 3, array[1,2] || array[3], array_length(array[1,2], 1), cardinality(array[1,2]), '{1,2}'::int[], array['a','b c']::text
select 2 = any(array[1,2]), 3 > all(array[1,2]), array[1,2] @> array[1], array[1,2] && array[2,3], array_position(array['a','b'], 'b'), array_to_string(array[1,null,3], ',', '*'), string_to_array('a,b', ',')
select array_agg(id order by id desc), string_agg(s, ',' order by id), string_agg(distinct g, '-'), bool_and(bo), bool_or(bo), every(bo) from t
select u.x, u.o from unnest(array['a','b']) with ordinality as u(x, o)
select unnest(array[1,2,3])
select array(select id from t order by id)
select '{"a": {"b": [1, 2]}}'::jsonb -> 'a' -> 'b' -> 0, '{"a": 1}'::jsonb ->> 'a', '{"a": {"b": 2}}'::jsonb #> '{a,b}', '{"a": {"b": 2}}'::jsonb #>> '{a,b}', '{"a": 1, "b": 2}'::jsonb @> '{"a": 1}'
select jsonb_build_object('a', 1, 'b', array[1,2]), jsonb_build_array(1, 'x', null), to_jsonb('x'::text), json_build_object('a', 1), jsonb_typeof('[1]'), jsonb_array_length('[1,2]')
select jsonb_set('{"a": 1}', '{a}', '2'), '{"a": 1, "b": 2}'::jsonb - 'a', '{"a": 1}'::jsonb || '{"b": 2}', jsonb_strip_nulls('{"a": null}'), '{"b":1, "a":  2}'::jsonb
select * from jsonb_array_elements('[1, "a", null]')
select * from jsonb_each('{"a": 1, "b": "x"}')
select jsonb_agg(i order by id), jsonb_object_agg(id, s) from t
select case when i > 5 then 'big' when i is null then 'none' else 'small' end from t order by id
select case i when 10 then 1.5 else 2 end from t order by id
select id, (select max(v) from u where u.tid = t.id), (select v from u where u.tid = t.id order by v limit 1), exists (select 1 from u where u.tid = t.id) from t order by id
select (select v from u)
select t.id, x.v from t left join lateral (select v from u where u.tid = t.id order by v desc limit 1) x on true order by 1
select t.id, x from t, lateral (select t.i * 2 as x) q order by 1
with recursive r(n, f) as (select 1, 1 union all select n + 1, f * (n + 1) from r where n < 6) select * from r
with recursive r(a) as (values (1) union select (a * 2) % 7 from r) select * from r order by 1
with x as (select random() as r) select (select r from x) = (select r from x)
with a as (select 1 as x), b as (select x + 1 as y from a) select x, y from a, b
select g, i, count(*), grouping(g, i) from t group by grouping sets ((g), (i), ()) order by 1, 2, 3, 4
select g, bo, sum(i) from t group by rollup (g, bo) order by 1, 2, 3
select g, bo, count(*) from t group by cube (g, bo) order by 1, 2, 3
select distinct on (g) g, id from t order by g, id desc
select distinct g from t order by g nulls first
select id from t order by i desc nulls last, id limit 2 offset 1
select id as x, i as x from t order by id
select g as h, count(*) from t group by h having count(*) > 1 order by h
select a.id from t a, t b where a.id = b.i
select * from (values (1, 'a'), (2, null)) v(x, y)
values (1, 2.5), (2, 3)
select * from (select 1 as a, 2 as b) q(c)
select percentile_cont(0.5) within group (order by i), percentile_disc(0.5) within group (order by i), mode() within group (order by g) from t
select sum(i) filter (where g = 'x'), count(*) filter (where i is null) from t
select stddev(f), variance(f), stddev_pop(f), corr(f, i) from t
select ntile(2) over (order by id), percent_rank() over (order by id), cume_dist() over (order by id), nth_value(id, 2) over (order by id) from t order by id
select sum(i) over (order by id rows between 1 preceding and 1 following), sum(i) over (order by id range between unbounded preceding and current row) from t order by id
select width_bucket(5.35, 0.024, 10.06, 5), gcd(12, 18), lcm(4, 6), num_nulls(1, null), 5 & 3, 5 | 3, 5 # 3, ~5, 1 << 4, 16 >> 2
select i between 1 and 10, i between symmetric 10 and 1, i is distinct from 10, bo is true, bo is not false, bo is unknown from t order by id
select id from t where s > 'b' and d < '2021-01-01' order by id
select '1' + 1, 1 + '1', '5' * 2.5, date '2020-01-01' - '2019-12-31', timestamp '2020-01-01' + '1 day'
select 'a' = 1
select 1 = 'a'
select i = s from t
select s + 1 from t
select i || i from t
select nofunc(1)
select upper(1)
select length(5)
select sum(s) from t
select nocol from t
select x.id from t
select id from t join u on t.id = u.tid join t t2 on true
select * from nowhere
select * from t a, t a
select sum(sum(i)) from t
select id from t where sum(i) > 1
select id from t where row_number() over () = 1
select case when 1 then 2 end
select 1 where 'a'
select 1 where 1
select coalesce(1, 'x')
select 1 union select 'a'
select 1 union select true
select 1, 2 union select 1
select id from t order by 5
select id from t group by 5
select list_value(1)
select epoch_ms(1)
select * exclude (id) from t
select id from t group by all
select 1 limit -1
select 1 offset -1
select 'a'::nosuchtype
select interval 'x'
select date '2020-13-01'
select date '2020-02-30'
select timestamp 'x'
select cast('' as int)
select 1 + null, null = null, null is null, not null, null and false, null or true
select max(bo) from t
select true + 1
select - 'a'
select array[1, 'a']
select (select 1, 2)
select 1 in (select 1, 2)
select row_number() from t
select upper(s) over () from t
select count(distinct) from t
select count() from t
select '2020-01-01'::date = '2020-01-01', '10:00'::time < '11:00', timestamp '2020-01-01' = date '2020-01-01'
select pg_typeof(1), pg_typeof(1.5), pg_typeof('a'::text), pg_typeof(now()), pg_typeof(1::bigint)
select string_agg(s, i) from t
select substring('abc' from 2 for -1)
select repeat('a', -1), left('abc', 0), substr('abc', 10), position('' in 'abc')
select 5 % 0
select power(0, -1)
select 0.1 + 0.2, 1.10 * 2.20, 1.5 - 0.50, -1.5, 1.0 = 1.00, 123456789012345678901234567890 + 1
select avg(x) from (values (1), (2), (4)) v(x)
select avg(x), sum(x) from (values (1.5), (2.25), (4)) v(x)
select x, count(*) from (values (1.0), (1.00), (2)) v(x) group by x order by x
select id, row_number() over (partition by g order by i nulls first, id) from t order by id
select u.* from t left join u on t.id = u.tid order by 1, 2 nulls first
select to_char(interval '15h 2m 12s', 'HH24:MI:SS'), to_char(148.5, '999D9'), to_char(-0.1, '99.99'), to_char(0.1, '0.9'), to_char(12, '9990999.9')
select jsonb_array_elements('[1]') as x, * from jsonb_array_elements_text('["b"]') as y
select avg(x) from (values (9223372036854775807), (9223372036854775805)) v(x)
select 1000000000000000000.5 / 3, 1e30 / 7
select some_col from (select 1 as some_col) q where some_col = some (select 1)
select ty.x from (select 1 as x) ty, (select 2 as x) tz where x = 1
select case when false then 1/0 else 2 end, (select 5 where false), array[]::int[]
select date_bin('15 minutes', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01')
select t.* from t where id = 1
select count(*) over (), sum(count(*)) over (order by g) from t group by g order by g
select g, sum(i) as total from t group by 1 order by total desc nulls last, g limit 2
select id, i from t where not (i > 5) or i is null order by id
select (n * 100)::int, n::float8, f::numeric(12,2), i::float8 / 3, b::numeric from t order by id
select min(ts), max(ts), max(ts) - min(ts), min(d) + 1 from t
select s, s is null, coalesce(s, 'none'), length(s), s || '!' from t order by id
select * from t1 join t2 on t1.a = t2.a and t2.c <> 'C' left join u on u.k = t1.k
select a, count(*) filter (where b = 's') * 2 + 1 from t1 group by a order by a
select distinct a, count(*) over (partition by a) from t1 order by 1
select exists (select 1 from t where false), not exists (select 1 from t), (select count(*) from t)
select id from t where d in ('2020-01-01', '1999-12-31') order by id
select id from t where exists (select from u where u.tid = t.id and u.v > t.i - 5) order by id
select x.a, y.a from t1 x join t1 y on x.a < y.a order by 1, 2
select upper(g) as gg, array_agg(i order by i) from t group by upper(g) order by 1
select lower(s) from t group by lower(s) order by 1
select s from t group by lower(s)
select i + 1 from t group by i + 1 order by 1 nulls first
select i + 2 from t group by i + 1
select max(i) from t having count(*) > 100
select 1 from t having count(*) > 1
SELECT x.id, x.label FROM t AS x (id, label) WHERE x.id > 3 ORDER BY 1
SELECT a.key, b.amount FROM t1 a (key, number, letter) JOIN t2 b (place, amount) ON b.amount = a.number ORDER BY 1, 2
SELECT p, r FROM (t1 CROSS JOIN t2) AS pairs (p, q, r) WHERE p < 3 ORDER BY 1, 2
SELECT (u)::text, (u).v, count(u) OVER () FROM u ORDER BY (u).k
SELECT row_to_json(u), to_jsonb(u) - 'tid' FROM u WHERE k < 4 ORDER BY k
SELECT json_agg(pair ORDER BY pair.k) FROM (SELECT k, v FROM u WHERE v IS NOT NULL) pair
SELECT (ROW(1, 2)).f2, ROW(1, NULL, 'a b', true)::text
SELECT element FROM jsonb_array_elements('[3, "x"]') AS element
SELECT jsonb_path_query_array('{"rows": [{"n": 1}, {"n": 5}, {"m": 2}]}', '$.rows[*].n ? (@ >= $low)', '{"low": 2}')
SELECT jsonb_path_exists('{"a": [1, 2]}', '$.a[*] ? (@ == 2)'), jsonb '{"a": 3}' @@ '$.a > 2', jsonb '[1]' @? '$[3]'
SELECT step FROM jsonb_path_query('{"a": {"b": [1, "x", null]}}', '$.**.type()') AS step
SELECT jsonb_path_query_first('{"name": "Ada"}', '$.name ? (@ like_regex "^a" flag "i")'), jsonb_path_query('[4, 7]', '$[last] - 2')
SELECT jsonb_path_query('{"a": 1}', 'strict $.b')
SELECT jsonb_path_query('{"a": 1}', 'strict $.b', silent => true)
SELECT jsonb '{"a": {"b": 1, "c": 2}}' #- '{a,b}', jsonb_object('{k,v}'), json_object('{a,b}', '{1,2}'), json_strip_nulls('{"a": null, "b": 2}')
SELECT (date '2021-01-01', date '2021-03-01') OVERLAPS (date '2021-02-10', interval '5 days'), (time '09:00', time '10:00') OVERLAPS (time '10:00', time '11:00')
SELECT s FROM t WHERE s LIKE ANY (ARRAY['o%', '%\%b']) ORDER BY id
SELECT s, s NOT LIKE ALL (ARRAY['o%', 't%']), s ILIKE ANY ('{ONE,NULL}') FROM t ORDER BY id
SELECT 'a#c' SIMILAR TO 'a##_' ESCAPE '#', 'xyz' NOT SIMILAR TO '(x|y)%', substring('key=value' FROM '%=#"%#"' FOR '#')
SELECT id, g FROM t ORDER BY g NULLS LAST FETCH FIRST 1 ROW WITH TIES
SELECT id FROM t ORDER BY i USING >, id USING <
SELECT concat(VARIADIC ARRAY['a', NULL, 'b']), concat_ws('-', VARIADIC ARRAY[1, 2]), format('%s/%s', VARIADIC ARRAY['x', 'y'])
SELECT format('[%*s] [%-*s] [%2$s]', 4, 'a', 3, 'b')
SELECT regexp_replace('one two three', '[a-z]+', '<\&>', 1, 2), regexp_count('banana', 'an', 3), regexp_instr('banana', 'n', 1, 2), regexp_substr('a1b22', '[0-9]+', 1, 2)
SELECT to_char(1234.5, 'S9,999.00'), to_char(-7, '00PR'), to_char(485, 'FMRN'), to_char(3, '9th'), to_char(0.25, '"part "0.99'), to_char(-5, '999MI')
SELECT sqrt(2.25), exp(0.0), power(2.0, 5), log(2.0, 8.0), variance(i), stddev_pop(b::int) FROM t WHERE id IN (1, 5)
SELECT variance(n), stddev_samp(n), var_pop(i) FROM t
SELECT percentile_cont(ARRAY[0.25, 0.5]) WITHIN GROUP (ORDER BY i), mode() WITHIN GROUP (ORDER BY g), rank(5) WITHIN GROUP (ORDER BY i) FROM t
SELECT float8(id), text(n), int4(f) FROM t WHERE id < 4 ORDER BY id
SELECT CASE WHEN id = 1 THEN g ELSE s END, CASE id WHEN 1 THEN 2 END FROM t ORDER BY id
SELECT 0.50::text, (-0.5)::text, 5 % -1, (-2147483648)::int % -1, - (-9223372036854775808)::bigint
SELECT chr(0)
SELECT sha256('abc'), get_byte('\x0a0b'::bytea, 1), set_bit('\x00'::bytea, 3, 1), btrim('\x00aa00'::bytea, '\x00'::bytea)
SELECT date_trunc('century', timestamp '1999-05-05'), make_date(-44, 3, 15)::text, make_timestamptz(2020, 1, 2, 3, 4, 5, 'Europe/Berlin')
SELECT 1 = ANY (NULL::int[]), ARRAY[1, NULL] @> ARRAY[NULL]::int[], string_to_array('a,b,', ',', ''), array_position(ARRAY[1, 2, 1], 1, 2)
SELECT v FROM generate_series(0.5, 2.0, 0.75) AS v
SELECT a, b, n FROM ROWS FROM (generate_series(1, 3), generate_series(7, 8)) WITH ORDINALITY AS f (a, b, n)
SELECT U&'caf\00e9', U&'!0041!!' UESCAPE '!', unistr('\0061'), 'alpha' ^@ 'al'
SELECT ntile(0) OVER (ORDER BY id) FROM t
SELECT nth_value(id, 0) OVER (ORDER BY id) FROM t
SELECT '1e40'::real
SELECT jsonb '{"a": 1}' - 0
SELECT date 'J2451187', date '1999.008', date '990108', date '08-Jan-99', time '040506', '11:59:30.789'::time(1)
SELECT timestamp '2020-01-01 00:00:59.5'::timestamp(0), timestamptz '2020-03-15 08:14:01 PST', timestamptz '2020-03-15 08:14:01 GMT+08:00'
SELECT timestamp '19970210 173201 -0800', timestamp 'Mon Feb 10 17:32:01.4 1997 PST', date 'tomorrow' - date 'today'
SELECT date '1999.400'
SELECT time 'noon o''clock'
SELECT div(999999999999999999999::numeric, 1000000000000000000000), div(12345678901234567890, 123), div(-9999999999999999999999::numeric, 1000000000000000000000)
SELECT array_to_string(array[1,2,NULL], NULL), array_to_string(array[1,2,NULL], ',', '*')
SELECT var_pop('inf'::float8), var_samp('inf'::float8), stddev_pop('nan'::float8), stddev('nan'::float8), variance(x) FROM (VALUES (1.5::float8), (2.5)) v(x) GROUP BY ()
SELECT x, sind(x), cosd(x), tand(x), cotd(x) FROM (VALUES (0), (30), (45), (60), (90), (135), (180), (225), (270), (315), (360), (-30), (-450)) AS v(x)
SELECT x, asind(x), acosd(x), atand(x) FROM (VALUES (-1.0), (-0.5), (0.0), (0.5), (1.0)) AS v(x)
SELECT sind(1e-10), atan2d(1, 0), atan2d(-1, -1)
SELECT asind(1.5)
SELECT decode(encode('\x1234567890abcdef00'::bytea, 'escape'), 'escape'), regexp_like('abc', ' a . c ', 'x')
SELECT to_char('100'::numeric, 'f\oo999'), to_char('100'::numeric, 'f\\oo999'), to_char('100'::numeric, 'f\"oo999'), to_char('100'::numeric, 'f"ool"999')
SELECT EXTRACT(DECADE FROM DATE '0002-12-31 BC'), EXTRACT(YEAR FROM DATE '2020-08-11 BC'), EXTRACT(ISOYEAR FROM DATE '2020-08-11 BC'), EXTRACT(DECADE FROM DATE '0012-12-31 BC')
SELECT EXTRACT(TIMEZONE FROM DATE '2020-08-11')
SELECT 123abc
SELECT 0.0e
SELECT U&'wrong: \db99'
SELECT U&'wrong: \+2FFFFF'
SELECT array_agg(distinct a) FROM (VALUES (1),(2),(1),(3),(NULL),(2)) v(a)
SELECT array_agg(distinct a order by a desc) FROM (VALUES (1),(2),(1),(3),(NULL),(2)) v(a)
SELECT string_agg(v, NULL) FROM (VALUES ('\xff'::bytea), ('\xaa')) b(v)
SELECT '{"a": {"b":{"c": "foo"}}}'::json -> 'a', '{"a": {"b":{"c": "foo"}}}'::json #>> '{a}', '[1,[2, 3]]'::json -> 1, '[1,[2, 3]]'::json ->> 1, '{"a":"x\u0041", "a":2.0}'::json ->> 'a'
SELECT row_to_json(q) FROM (SELECT 'NaN'::float8 AS a, '-Infinity'::float4 AS b) q
SELECT json_array_elements('[1,{"a" : 1}, "x", null]'), json_array_elements_text('[1,{"a" : 1}, "x", null]')
SELECT ('[1, "2", null]'::jsonb)['1'], ('{"a": [1, 2]}'::jsonb)['a'][1]
SELECT jsonb '{"a": 12}' @? '$.b + 2', jsonb '[1]' @? 'strict $[1]', jsonb '[1,"2",0,3]' @? '-$[*]', jsonb '["1",2,0,3]' @? 'strict -$[*]'
SELECT interval '1 2' day to hour, interval '1 2:03' day to hour, interval '1 2:03:04' day to minute, interval '1 2:03' day to second, interval '1 2:03:04' hour to minute, interval '1 +2:03' minute to second, interval '123 11' day to hour, interval '-1 +02:03', interval '+1 -1:00:00', interval '+1-2 -3 +4:05:06.789'
SELECT interval(0) '1 day 01:23:45.6789', '1 day 01:23:45.6789'::interval(2), interval '1.234' second(2), interval '12:34.5678' minute to second(2)
SELECT '1 year 2 months 3 days 04:05:06.7'::interval year, '1 year 2 months 3 days 04:05:06.7'::interval month, '1 year 2 months 3 days 04:05:06.7'::interval day to minute, '04:05:06.7'::interval hour
SELECT '$.a ? (@.b > 1 && !(exists (@.c))).d[0, 2 to last]'::jsonpath::text, 'strict $.**{2 to last} + -1'::jsonpath::text, '$ ? (@ like_regex "^a.*" flag "is" || @ starts with "x")'::jsonpath::text
SELECT jsonb_path_query('["ab\nadc", "abdc", "a\\b"]', 'lax $[*] ? (@ like_regex "^ab.*c")')
SELECT jsonb_path_query('[1, "2", 3]', '+$[*]', silent => true)
SELECT jsonb_path_exists('[{"a": 1}, {"a": 2}, 3]', 'strict $[*].a', silent => true), jsonb_path_exists('[{"a": 1}, {"a": 2}, 3]', 'lax $[*].a')
SELECT jsonb_path_query('{"a": {"b": 1}}', 'lax $.**{last}')
SELECT regexp_replace(E'a\nb', '^b', 'x', 'w'), E'a\nb' ~ 'a.b', regexp_like(E'a\nb', 'a.b', 'p'), regexp_like('a\b', 'a\Bb')
SELECT 'NaN'::numeric, 'Infinity'::numeric, '-inf'::numeric, 'NaN'::numeric = 'NaN'::numeric, 'NaN'::numeric > 1e100, 'inf'::numeric - 'inf'::numeric
SELECT 1e100 + 1, 1e-100 * 3, 12345678901234567890123456789012345678901234567890::numeric / 7, 2::numeric ^ 200, -(1e50)
SELECT x, x + 1, x * 2, x / 3, x < 5, abs(x), round(x, 1), sign(x) FROM (VALUES (1.5::numeric), ('NaN'), ('Infinity'), ('-Infinity'), (1e45)) v(x) ORDER BY x
SELECT sum(x), avg(x), min(x), max(x), count(x), variance(x) FROM (VALUES (1.5::numeric), (2.25), (1e45)) v(x)
SELECT sum(x), avg(x), var_pop(x), stddev(x) FROM (VALUES ('1'::numeric), ('infinity')) v(x)
SELECT sum(x::numeric), avg(x::numeric) FROM (VALUES ('-infinity'), ('infinity')) v(x)
SELECT scale(1.120), min_scale(1.120), trim_scale(1.120), scale(NULL::numeric), trim_scale(0.00), scale('NaN'::numeric)
SELECT 'NaN'::float8::numeric, 'Infinity'::float8::numeric, 'nan'::numeric::float8, '1e400'::numeric::text
SELECT 'NaN'::numeric::int4
SELECT 1e400::numeric::float8
SELECT sqrt(1e60), ln(1e60), log(1e60), exp(123.456), power(2, 200.0), 1.1::numeric ^ 3000
SELECT greatest(1e50, 2, 'NaN'::numeric), least(1e50, 2.50), coalesce(NULL, 1e50), CASE WHEN 1e50 > 3 THEN 1.0 ELSE 2 END
SELECT mod(1e50, 7), div(1e50, 7), 1e50 % 7.5, gcd(1e40::numeric, 4e39), ceil(1e40 + 0.5), floor(-1e40 - 0.5), trunc(1e40 + 0.55, 1)
SELECT 123.456::numeric(50, 2), 1e45::numeric(50, 2), 'NaN'::numeric(50, 2)
SELECT 1e49::numeric(50, 2)
SELECT 'inf'::numeric(50, 2)
SELECT 1e50 / 0
SELECT 'x'::text || 1e50, (1e50)::text, to_char(1e20::numeric, '9999999999999999999999'), 1e50 BETWEEN 1 AND 1e51, 1e50 IN (1, 1e50)
SELECT factorial(40), 99999999999999999999999999999999999999 + 1, 99999999999999999999::numeric * 99999999999999999999::numeric
SELECT row_number() OVER (PARTITION BY x ORDER BY y) FROM (VALUES (1e50, 2), (1e50, 1), (3, 1)) v(x, y)
SELECT power('-2'::numeric, '3'), power('inf'::numeric, '-2'), 0.5678 ^ (-85), 3.789 ^ 35, 12.3 ^ (-45.6)
