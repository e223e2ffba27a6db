"""The functions that there are: their arguments, what they give, and how DuckDB is asked for them.

A line is `name(arguments) -> result : SQL`. Without SQL, DuckDB has the same function. Of several that fit, the one
whose arguments are closest is taken. `any` is any type, `element` that of the elements of `array`; a result of `=` is
the type of the first argument. `!` before a name marks a volatile function.
"""

# ruff: noqa: E501

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

_SCALARS = r"""
abs(int2) -> int2
abs(int4) -> int4
abs(int8) -> int8
abs(numeric) -> =
abs(float4) -> float4
abs(float8) -> float8
ceil(numeric) -> whole : ceil({0})
ceil(float8) -> float8
ceiling(numeric) -> whole : ceil({0})
ceiling(float8) -> float8 : ceil({0})
floor(numeric) -> whole : floor({0})
floor(float8) -> float8
round(numeric) -> whole : round({0})
round(float8) -> float8 : round_even({0}, 0)
trunc(numeric) -> whole : trunc({0})
trunc(float8) -> float8
sign(numeric) -> whole : CAST(sign({0}) AS DECIMAL(38, 0))
sign(float8) -> float8 : CAST(sign({0}) AS DOUBLE)
sqrt(float8) -> float8 : sqrt(CASE WHEN {0} < 0 THEN error('2201F|cannot take square root of a negative number') ELSE {0} END)
cbrt(float8) -> float8
exp(float8) -> float8 : (CASE WHEN isinf(exp({0})) AND isfinite({0}) THEN CAST(error('22003|value out of range: overflow') AS DOUBLE) ELSE exp({0}) END)
degrees(float8) -> float8
radians(float8) -> float8
sin(float8) -> float8
cos(float8) -> float8
tan(float8) -> float8
cot(float8) -> float8
asin(float8) -> float8 : asin(CASE WHEN abs({0}) > 1 THEN error('22003|input is out of range') ELSE {0} END)
acos(float8) -> float8 : acos(CASE WHEN abs({0}) > 1 THEN error('22003|input is out of range') ELSE {0} END)
atan(float8) -> float8
atan2(float8, float8) -> float8
sinh(float8) -> float8
cosh(float8) -> float8
tanh(float8) -> float8
pi() -> float8
booleq(bool, bool) -> bool : ({0} = {1})
boolne(bool, bool) -> bool : ({0} <> {1})
gcd(int4, int4) -> int4 : CAST(gcd({0}, {1}) AS INTEGER)
gcd(int8, int8) -> int8
min_scale(numeric) -> int4 : length(regexp_replace(regexp_extract(CAST({0} AS VARCHAR), '\.(\d*)', 1), '0+$', ''))
lcm(int4, int4) -> int4 : CAST(lcm({0}, {1}) AS INTEGER)
lcm(int8, int8) -> int8
factorial(int8) -> numeric0 : CAST(factorial(CAST({0} AS INTEGER)) AS DECIMAL(38, 0))
width_bucket(float8, float8, float8, int4) -> int4 : (CASE WHEN {3} <= 0 THEN CAST(error('2201G|count must be greater than zero') AS INTEGER) WHEN {1} = {2} THEN CAST(error('2201G|lower bound cannot equal upper bound') AS INTEGER) WHEN {1} < {2} AND {0} < {1} OR {1} > {2} AND {0} > {1} THEN 0 WHEN {1} < {2} AND {0} >= {2} OR {1} > {2} AND {0} <= {2} THEN {3} + 1 ELSE CAST(floor(({0} - {1}) / ({2} - {1}) * {3}) AS INTEGER) + 1 END)
!random() -> float8
!setseed(float8) -> void : setseed({0})
!gen_random_uuid() -> uuid : uuid()
pg_client_encoding() -> name : 'UTF8'
!clock_timestamp() -> timestamptz : CAST(get_current_timestamp() AT TIME ZONE 'UTC' AS TIMESTAMP)
now() -> timestamptz : CAST(get_current_timestamp() AT TIME ZONE 'UTC' AS TIMESTAMP)
transaction_timestamp() -> timestamptz : CAST(get_current_timestamp() AT TIME ZONE 'UTC' AS TIMESTAMP)
statement_timestamp() -> timestamptz : CAST(get_current_timestamp() AT TIME ZONE 'UTC' AS TIMESTAMP)
upper(text) -> text
lower(text) -> text
initcap(text) -> text : @initcap({0})
length(text) -> int4 : CAST(length({0}) AS INTEGER)
length(bytea) -> int4 : CAST(octet_length({0}) AS INTEGER)
char_length(text) -> int4 : CAST(length({0}) AS INTEGER)
character_length(text) -> int4 : CAST(length({0}) AS INTEGER)
octet_length(text) -> int4 : CAST(strlen({0}) AS INTEGER)
octet_length(bpchar) -> int4 : CAST(strlen({0}) AS INTEGER)
octet_length(bytea) -> int4 : CAST(octet_length({0}) AS INTEGER)
bit_length(text) -> int4 : CAST(strlen({0}) * 8 AS INTEGER)
bit_length(bytea) -> int4 : CAST(octet_length({0}) * 8 AS INTEGER)
reverse(text) -> text
replace(text, text, text) -> text : (CASE WHEN {1} = '' THEN {0} ELSE replace({0}, {1}, {2}) END)
translate(text, text, text) -> text
repeat(text, int4) -> text : repeat({0}, greatest({1}, 0))
left(text, int4) -> text
right(text, int4) -> text
lpad(text, int4, text) -> text : (CASE WHEN {2} = '' THEN left({0}, greatest({1}, 0)) ELSE lpad({0}, greatest({1}, 0), {2}) END)
lpad(text, int4) -> text : lpad({0}, greatest({1}, 0), ' ')
rpad(text, int4, text) -> text : (CASE WHEN {2} = '' THEN left({0}, greatest({1}, 0)) ELSE rpad({0}, greatest({1}, 0), {2}) END)
rpad(text, int4) -> text : rpad({0}, greatest({1}, 0), ' ')
btrim(text) -> text : trim({0}, ' ')
btrim(text, text) -> text : trim({0}, {1})
ltrim(text) -> text : ltrim({0}, ' ')
ltrim(text, text) -> text
rtrim(text) -> text : rtrim({0}, ' ')
rtrim(text, text) -> text
strpos(text, text) -> int4 : CAST(strpos({0}, {1}) AS INTEGER)
position(text, text) -> int4 : CAST(strpos({1}, {0}) AS INTEGER)
starts_with(text, text) -> bool
ascii(text) -> int4 : CAST(ascii({0}) AS INTEGER)
chr(int4) -> text : (CASE WHEN {0} = 0 THEN error('54000|null character not permitted') WHEN {0} < 0 THEN error('54000|character number must be positive') ELSE chr({0}) END)
md5(text) -> text
md5(bytea) -> text : md5({0})
sha224(bytea) -> bytea : @digest({0}, 'sha224')
sha256(bytea) -> bytea : @digest({0}, 'sha256')
sha384(bytea) -> bytea : @digest({0}, 'sha384')
sha512(bytea) -> bytea : @digest({0}, 'sha512')
to_hex(int4) -> text : lower(hex(CASE WHEN {0} < 0 THEN CAST({0} AS BIGINT) + 4294967296 ELSE {0} END))
to_hex(int8) -> text : lower(hex({0}))
split_part(text, text, int4) -> text : (CASE WHEN {2} = 0 THEN error('22023|field position must not be zero') WHEN {1} = '' THEN CASE WHEN abs({2}) = 1 THEN {0} ELSE '' END ELSE split_part({0}, {1}, {2}) END)
quote_literal(text) -> text : @quote_literal({0})
quote_literal(any) -> text : @quote_literal({0s})
quote_nullable(any) -> text : coalesce(@quote_literal({0s}), 'NULL')
quote_ident(text) -> text : @quote_ident({0})
quote_nullable(text) -> text : coalesce(@quote_literal({0}), 'NULL')
regexp_replace(text, text, text) -> text : @replace_pattern({0}, {1}, {2}, '')
regexp_replace(text, text, text, text) -> text : @replace_pattern({0}, {1}, {2}, {3})
regexp_match(text, text) -> text[] : @match_pattern({0}, {1}, '')[1]
regexp_match(text, text, text) -> text[] : @match_pattern({0}, {1}, {2})[1]
regexp_like(text, text) -> bool : @matches_pattern({0}, {1}, '')
regexp_like(text, text, text) -> bool : @matches_pattern({0}, {1}, {2})
regexp_count(text, text) -> int4 : @count_matches({0}, {1}, 1, '')
regexp_count(text, text, int4) -> int4 : @count_matches({0}, {1}, {2}, '')
regexp_count(text, text, int4, text) -> int4 : @count_matches({0}, {1}, {2}, {3})
regexp_substr(text, text) -> text : @find_match({0}, {1}, 1, 1, '', 0)[1]
regexp_substr(text, text, int4) -> text : @find_match({0}, {1}, {2}, 1, '', 0)[1]
regexp_substr(text, text, int4, int4) -> text : @find_match({0}, {1}, {2}, {3}, '', 0)[1]
regexp_substr(text, text, int4, int4, text) -> text : @find_match({0}, {1}, {2}, {3}, {4}, 0)[1]
regexp_substr(text, text, int4, int4, text, int4) -> text : @find_match({0}, {1}, {2}, {3}, {4}, {5})[1]
regexp_instr(text, text) -> int4 : CAST(coalesce(@find_match({0}, {1}, 1, 1, '', 0)[2], CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN '0' END) AS INTEGER)
regexp_instr(text, text, int4) -> int4 : CAST(coalesce(@find_match({0}, {1}, {2}, 1, '', 0)[2], '0') AS INTEGER)
regexp_instr(text, text, int4, int4) -> int4 : CAST(coalesce(@find_match({0}, {1}, {2}, {3}, '', 0)[2], '0') AS INTEGER)
regexp_instr(text, text, int4, int4, int4) -> int4 : CAST(coalesce(@find_match({0}, {1}, {2}, {3}, '', 0)[2 + {4}], '0') AS INTEGER)
regexp_instr(text, text, int4, int4, int4, text) -> int4 : CAST(coalesce(@find_match({0}, {1}, {2}, {3}, {5}, 0)[2 + {4}], '0') AS INTEGER)
regexp_instr(text, text, int4, int4, int4, text, int4) -> int4 : CAST(coalesce(@find_match({0}, {1}, {2}, {3}, {5}, {6})[2 + {4}], '0') AS INTEGER)
regexp_replace(text, text, text, int4) -> text : @replace_nth({0}, {1}, {2}, {3}, 1, '')
regexp_replace(text, text, text, int4, int4) -> text : @replace_nth({0}, {1}, {2}, {3}, {4}, '')
regexp_replace(text, text, text, int4, int4, text) -> text : @replace_nth({0}, {1}, {2}, {3}, {4}, {5})
unistr(text) -> text : @unicode_text({0})
normalize(text) -> text : nfc_normalize({0})
parse_ident(text) -> text[] : @identifier_parts({0})
get_byte(bytea, int4) -> int4 : @bytes_number({0}, 'byte', {1})
get_bit(bytea, int8) -> int4 : @bytes_number({0}, 'bit', CAST({1} AS INTEGER))
bit_count(bytea) -> int8 : CAST(@bytes_number({0}, 'count', 0) AS BIGINT)
set_byte(bytea, int4, int4) -> bytea : @bytes_edit({0}, 'byte', {1}, {2})
set_bit(bytea, int8, int4) -> bytea : @bytes_edit({0}, 'bit', CAST({1} AS INTEGER), {2})
btrim(bytea, bytea) -> bytea : @bytes_trim({0}, {1}, 'btrim')
ltrim(bytea, bytea) -> bytea : @bytes_trim({0}, {1}, 'ltrim')
rtrim(bytea, bytea) -> bytea : @bytes_trim({0}, {1}, 'rtrim')
strpos(bytea, bytea) -> int4 : @bytes_place({0}, {1})
position(bytea, bytea) -> int4 : @bytes_place({1}, {0})
sind(float8) -> float8 : @degrees({0}, 'sind')
cosd(float8) -> float8 : @degrees({0}, 'cosd')
tand(float8) -> float8 : @degrees({0}, 'tand')
cotd(float8) -> float8 : @degrees({0}, 'cotd')
asind(float8) -> float8 : @degrees({0}, 'asind')
acosd(float8) -> float8 : @degrees({0}, 'acosd')
atand(float8) -> float8 : @degrees({0}, 'atand')
atan2d(float8, float8) -> float8 : @atan2d({0}, {1})
asinh(float8) -> float8
acosh(float8) -> float8
atanh(float8) -> float8
regexp_split_to_array(text, text) -> text[] : @split_pattern({0}, {1}, '')
regexp_split_to_array(text, text, text) -> text[] : @split_pattern({0}, {1}, {2})
string_to_array(text, text) -> text[] : (CASE WHEN {0} = '' THEN CAST([] AS VARCHAR[]) WHEN {1} IS NULL THEN string_split({0}, '') WHEN {1} = '' THEN [{0}] ELSE string_split({0}, {1}) END)
string_to_array(text, text, text) -> text[] : (CASE WHEN {2} IS NULL THEN @text_array({0}, coalesce({1}, chr(0)), chr(0)) ELSE @text_array({0}, coalesce({1}, chr(0)), {2}) END)
encode(bytea, text) -> text : @encode(lower(hex({0})), {1})
decode(text, text) -> bytea : unhex(@decode({0}, {1}))
convert_from(bytea, text) -> text : decode({0})
convert_to(text, text) -> bytea : encode({0})
to_char(timestamp, text) -> text : @to_char_time({0}, {1})
to_char(timestamptz, text) -> text : @to_char_time({0}, {1})
to_char(interval, text) -> text : @to_char_interval({0}, {1})
to_char(int4, text) -> text : @to_char_number(CAST({0} AS VARCHAR), {1})
to_char(int8, text) -> text : @to_char_number(CAST({0} AS VARCHAR), {1})
to_char(numeric, text) -> text : @to_char_number(CAST({0} AS VARCHAR), {1})
to_char(float8, text) -> text : @to_char_number(CAST({0} AS VARCHAR), {1})
to_date(text, text) -> date : CAST(@to_time({0}, {1}) AS DATE)
to_timestamp(text, text) -> timestamptz : @to_time({0}, {1})
to_timestamp(float8) -> timestamptz : make_timestamp(CAST(round({0} * 1000000) AS BIGINT))
to_number(text, text) -> quotient : @to_number({0}, {1})
age(timestamp, timestamp) -> interval : age({0}, {1})
age(timestamp) -> interval : age(CAST(CAST(get_current_timestamp() AT TIME ZONE 'UTC' AS DATE) AS TIMESTAMP), {0})
date_trunc(text, timestamp) -> timestamp : (CASE WHEN lower({0}) IN ('century', 'millennium', 'centuries', 'millennia') THEN CAST(date_trunc({0}, CAST({1} AS TIMESTAMP) - to_years(1)) + to_years(1) AS TIMESTAMP) ELSE CAST(date_trunc({0}, {1}) AS TIMESTAMP) END)
date_trunc(text, timestamptz) -> timestamptz : (CASE WHEN lower({0}) IN ('century', 'millennium', 'centuries', 'millennia') THEN CAST(date_trunc({0}, CAST({1} AS TIMESTAMP) - to_years(1)) + to_years(1) AS TIMESTAMP) ELSE CAST(date_trunc({0}, {1}) AS TIMESTAMP) END)
date_trunc(text, timestamptz, text) -> timestamptz : CAST(timezone({2}, CAST(date_trunc({0}, timezone({2}, {1} AT TIME ZONE 'UTC')) AS TIMESTAMP)) AT TIME ZONE 'UTC' AS TIMESTAMP)
date_trunc(text, interval) -> interval
make_date(int4, int4, int4) -> date : (CASE WHEN {0} = 0 THEN CAST(error('22008|date field value out of range: 0') AS DATE) ELSE make_date({0} + CAST({0} < 0 AS INTEGER), {1}, {2}) END)
make_time(int4, int4, float8) -> time : make_time({0}, {1}, {2})
make_timestamptz(int4, int4, int4, int4, int4, float8) -> timestamptz : make_timestamp({0}, {1}, {2}, {3}, {4}, {5})
make_timestamptz(int4, int4, int4, int4, int4, float8, text) -> timestamptz : CAST(timezone({6}, make_timestamp({0}, {1}, {2}, {3}, {4}, {5})) AT TIME ZONE 'UTC' AS TIMESTAMP)
timezone(text, timestamptz) -> timestamp : timezone({0}, {1} AT TIME ZONE 'UTC')
timezone(text, timestamp) -> timestamptz : CAST(timezone({0}, {1}) AT TIME ZONE 'UTC' AS TIMESTAMP)
make_timestamp(int4, int4, int4, int4, int4, float8) -> timestamp
isfinite(date) -> bool
isfinite(timestamp) -> bool
isfinite(interval) -> bool : ({0} IS NOT NULL)
justify_days(interval) -> interval : (to_months(CAST(datepart('year', {0}) * 12 + datepart('month', {0}) + datepart('day', {0}) // 30 AS INTEGER)) + ({0} - to_months(CAST(datepart('year', {0}) * 12 + datepart('month', {0}) AS INTEGER)) - to_days(CAST(datepart('day', {0}) // 30 * 30 AS INTEGER))))
cardinality(array) -> int4 : CAST(len({0}) AS INTEGER)
array_length(array, int4) -> int4 : CAST(CASE WHEN {1} = 1 THEN nullif(len({0}), 0) END AS INTEGER)
array_upper(array, int4) -> int4 : CAST(CASE WHEN {1} = 1 THEN nullif(len({0}), 0) END AS INTEGER)
array_lower(array, int4) -> int4 : CAST(CASE WHEN {1} = 1 AND len({0}) > 0 THEN 1 END AS INTEGER)
array_ndims(array) -> int4 : CAST(CASE WHEN len({0}) > 0 THEN 1 END AS INTEGER)
array_append(array, element) -> = : list_append({0}, {1})
array_prepend(element, array) -> =1 : list_prepend({0}, {1})
array_cat(array, array) -> = : list_concat({0}, {1})
array_remove(array, element) -> = : list_filter({0}, lambda e: e IS DISTINCT FROM {1})
array_replace(array, element, element) -> = : list_transform({0}, lambda e: CASE WHEN e IS NOT DISTINCT FROM {1} THEN {2} ELSE e END)
array_position(array, element) -> int4 : CAST(list_position({0}, {1}) AS INTEGER)
array_position(array, element, int4) -> int4 : CAST(list_position({0}[{2}:], {1}) + {2} - 1 AS INTEGER)
array_dims(array) -> text : ('[1:' || CAST(nullif(len({0}), 0) AS VARCHAR) || ']')
trim_array(array, int4) -> = : {0}[1:greatest(len({0}) - CASE WHEN {1} < 0 OR {1} > len({0}) THEN CAST(error('2202E|number of elements to trim must be between 0 and ' || CAST(len({0}) AS VARCHAR)) AS INTEGER) ELSE {1} END, 0)]
array_positions(array, element) -> int4[] : CAST(list_filter(range(1, len({0}) + 1), lambda e: {0}[e] IS NOT DISTINCT FROM {1}) AS INTEGER[])
array_to_string(array, text) -> text : (CASE WHEN {1} IS NOT NULL THEN array_to_string(list_filter({0t}, lambda e: e IS NOT NULL), {1}) END)
array_to_string(array, text, text) -> text : (CASE WHEN {1} IS NOT NULL THEN array_to_string(list_filter(list_transform({0t}, lambda e: coalesce(e, {2})), lambda e: e IS NOT NULL), {1}) END)
json_strip_nulls(json) -> json : @json_edit({0}, 'strip_nulls:json', CAST([] AS VARCHAR[]), '')
json_object(text[]) -> json : @json_made(list_transform({0}, lambda e: CAST(to_json(e) AS VARCHAR)), 'object:json')
json_object(text[], text[]) -> json : @json_made(flatten(list_transform(range(1, len({0}) + 1), lambda e: [CAST(to_json({0}[e]) AS VARCHAR), CAST(to_json({1}[e]) AS VARCHAR)])), 'object:json')
jsonb_object(text[]) -> jsonb : @json_made(list_transform({0}, lambda e: CAST(to_json(e) AS VARCHAR)), 'object:jsonb')
jsonb_object(text[], text[]) -> jsonb : @json_made(flatten(list_transform(range(1, len({0}) + 1), lambda e: [CAST(to_json({0}[e]) AS VARCHAR), CAST(to_json({1}[e]) AS VARCHAR)])), 'object:jsonb')
jsonb_delete_path(jsonb, text[]) -> jsonb : @json_edit({0}, 'delete', {1}, '')
jsonb_path_exists(jsonb, jsonpath) -> bool : @json_path_exists({0}, {1}, '{}', '')
jsonb_path_exists(jsonb, jsonpath, jsonb) -> bool : @json_path_exists({0}, {1}, {2}, '')
jsonb_path_exists(jsonb, jsonpath, jsonb, bool) -> bool : @json_path_exists({0}, {1}, {2}, CASE WHEN {3} THEN 'silent' ELSE '' END)
jsonb_path_exists_opr(jsonb, jsonpath) -> bool : @json_path_exists({0}, {1}, '{}', 'silent')
jsonb_path_match(jsonb, jsonpath) -> bool : @json_path_match({0}, {1}, '{}', '')
jsonb_path_match(jsonb, jsonpath, jsonb) -> bool : @json_path_match({0}, {1}, {2}, '')
jsonb_path_match(jsonb, jsonpath, jsonb, bool) -> bool : @json_path_match({0}, {1}, {2}, CASE WHEN {3} THEN 'silent' ELSE '' END)
jsonb_path_match_opr(jsonb, jsonpath) -> bool : @json_path_match({0}, {1}, '{}', 'silent')
jsonb_path_query_array(jsonb, jsonpath) -> jsonb : @json_made(@json_path({0}, {1}, '{}', ''), 'array:jsonb')
jsonb_path_query_array(jsonb, jsonpath, jsonb) -> jsonb : @json_made(@json_path({0}, {1}, {2}, ''), 'array:jsonb')
jsonb_path_query_array(jsonb, jsonpath, jsonb, bool) -> jsonb : @json_made(@json_path({0}, {1}, {2}, CASE WHEN {3} THEN 'silent' ELSE '' END), 'array:jsonb')
jsonb_path_query_first(jsonb, jsonpath) -> jsonb : @json_path({0}, {1}, '{}', '')[1]
jsonb_path_query_first(jsonb, jsonpath, jsonb) -> jsonb : @json_path({0}, {1}, {2}, '')[1]
jsonb_path_query_first(jsonb, jsonpath, jsonb, bool) -> jsonb : @json_path({0}, {1}, {2}, CASE WHEN {3} THEN 'silent' ELSE '' END)[1]
jsonb_typeof(jsonb) -> text : @json_kind({0}, 'type')
json_typeof(json) -> text : @json_kind({0}, 'type')
jsonb_array_length(jsonb) -> int4 : CAST(@json_kind({0}, 'length') AS INTEGER)
json_array_length(json) -> int4 : CAST(@json_kind({0}, 'length') AS INTEGER)
jsonb_pretty(jsonb) -> text : @json_kind({0}, 'pretty')
jsonb_strip_nulls(jsonb) -> jsonb : @json_edit({0}, 'strip_nulls', CAST([] AS VARCHAR[]), '')
jsonb_set(jsonb, text[], jsonb) -> jsonb : @json_edit({0}, 'create', {1}, {2})
jsonb_set(jsonb, text[], jsonb, bool) -> jsonb : @json_edit({0}, CASE WHEN {3} THEN 'create' ELSE 'set' END, {1}, {2})
jsonb_insert(jsonb, text[], jsonb) -> jsonb : @json_edit({0}, 'insert', {1}, {2})
jsonb_insert(jsonb, text[], jsonb, bool) -> jsonb : @json_edit({0}, CASE WHEN {3} THEN 'after' ELSE 'insert' END, {1}, {2})
jsonb_exists(jsonb, text) -> bool : @json_exists({0}, [{1}], 'any')
jsonb_exists_any(jsonb, text[]) -> bool : @json_exists({0}, {1}, 'any')
jsonb_exists_all(jsonb, text[]) -> bool : @json_exists({0}, {1}, 'all')
version() -> text : 'PostgreSQL 15.0 (Ontolake)'
current_database() -> text : 'main'
pg_typeof(any) -> text : {type}
"""

_AGGREGATES = """
count(any) -> int8 : count({d}{0}{o}){f}{w}
sum(int2) -> int8 : CAST(sum({d}{0}{o}){f}{w} AS BIGINT)
sum(int4) -> int8 : CAST(sum({d}{0}{o}){f}{w} AS BIGINT)
sum(int8) -> numeric0 : CAST(sum({d}{0}{o}){f}{w} AS DECIMAL(38, 0))
sum(numeric) -> total : sum({d}{0}{o}){f}{w}
sum(float4) -> float4 : CAST(sum({d}{0}{o}){f}{w} AS FLOAT)
sum(float8) -> float8 : sum({d}{0}{o}){f}{w}
sum(interval) -> interval : sum({d}{0}{o}){f}{w}
avg(float4) -> float8 : avg({d}{0}{o}){f}{w}
avg(float8) -> float8 : avg({d}{0}{o}){f}{w}
avg(interval) -> interval : avg({d}{0}{o}){f}{w}
min(sortable) -> = : min({d}{0}{o}){f}{w}
max(sortable) -> = : max({d}{0}{o}){f}{w}
bool_and(bool) -> bool : bool_and({d}{0}{o}){f}{w}
bool_or(bool) -> bool : bool_or({d}{0}{o}){f}{w}
every(bool) -> bool : bool_and({d}{0}{o}){f}{w}
bit_and(int2) -> int2 : bit_and({d}{0}{o}){f}{w}
bit_and(int4) -> int4 : bit_and({d}{0}{o}){f}{w}
bit_and(int8) -> int8 : bit_and({d}{0}{o}){f}{w}
bit_or(int2) -> int2 : bit_or({d}{0}{o}){f}{w}
bit_or(int4) -> int4 : bit_or({d}{0}{o}){f}{w}
bit_or(int8) -> int8 : bit_or({d}{0}{o}){f}{w}
bit_xor(int4) -> int4 : bit_xor({d}{0}{o}){f}{w}
bit_xor(int8) -> int8 : bit_xor({d}{0}{o}){f}{w}
string_agg(text, text) -> text : string_agg({d}{0}, {1}{o}){f}{w}
string_agg(bytea, bytea) -> bytea : unhex(string_agg({d}hex({0}), coalesce(hex({1}), ''){o}){f}{w})
array_agg(any) -> array0 : array_agg({d}{0}{o}){f}{w}
stddev(float8) -> float8 : (CASE WHEN bool_and(isfinite({0})){f}{w} THEN stddev_samp({d}{0}{o}){f}{w} WHEN count({d}{0}){f}{w} > 1 THEN CAST('nan' AS DOUBLE) END)
stddev_samp(float8) -> float8 : (CASE WHEN bool_and(isfinite({0})){f}{w} THEN stddev_samp({d}{0}{o}){f}{w} WHEN count({d}{0}){f}{w} > 1 THEN CAST('nan' AS DOUBLE) END)
stddev_pop(float8) -> float8 : (CASE WHEN bool_and(isfinite({0})){f}{w} THEN stddev_pop({d}{0}{o}){f}{w} WHEN count({d}{0}){f}{w} > 0 THEN CAST('nan' AS DOUBLE) END)
variance(float8) -> float8 : (CASE WHEN bool_and(isfinite({0})){f}{w} THEN var_samp({d}{0}{o}){f}{w} WHEN count({d}{0}){f}{w} > 1 THEN CAST('nan' AS DOUBLE) END)
var_samp(float8) -> float8 : (CASE WHEN bool_and(isfinite({0})){f}{w} THEN var_samp({d}{0}{o}){f}{w} WHEN count({d}{0}){f}{w} > 1 THEN CAST('nan' AS DOUBLE) END)
var_pop(float8) -> float8 : (CASE WHEN bool_and(isfinite({0})){f}{w} THEN var_pop({d}{0}{o}){f}{w} WHEN count({d}{0}){f}{w} > 0 THEN CAST('nan' AS DOUBLE) END)
corr(float8, float8) -> float8 : corr({0}, {1}){f}{w}
covar_pop(float8, float8) -> float8 : covar_pop({0}, {1}){f}{w}
covar_samp(float8, float8) -> float8 : covar_samp({0}, {1}){f}{w}
regr_count(float8, float8) -> int8 : CAST(regr_count({0}, {1}){f}{w} AS BIGINT)
regr_slope(float8, float8) -> float8 : regr_slope({0}, {1}){f}{w}
regr_intercept(float8, float8) -> float8 : regr_intercept({0}, {1}){f}{w}
regr_r2(float8, float8) -> float8 : regr_r2({0}, {1}){f}{w}
regr_avgx(float8, float8) -> float8 : regr_avgx({0}, {1}){f}{w}
regr_avgy(float8, float8) -> float8 : regr_avgy({0}, {1}){f}{w}
regr_sxx(float8, float8) -> float8 : regr_sxx({0}, {1}){f}{w}
regr_syy(float8, float8) -> float8 : regr_syy({0}, {1}){f}{w}
regr_sxy(float8, float8) -> float8 : regr_sxy({0}, {1}){f}{w}
jsonb_agg(any) -> jsonb : @json_made(array_agg({d}{0j}{o}){f}{w}, 'array:jsonb')
json_agg(any) -> json : @json_made(array_agg({d}{0j}{o}){f}{w}, 'array:json')
jsonb_object_agg(any, any) -> jsonb : @json_made(flatten(array_agg([{0k}, {1j}]{o}){f}{w}), 'object:jsonb')
json_object_agg(any, any) -> json : @json_made(flatten(array_agg([{0k}, {1j}]{o}){f}{w}), 'object:json')
"""

_WINDOWS = """
row_number() -> int8 : row_number(){f}{w}
rank() -> int8 : rank(){f}{w}
dense_rank() -> int8 : dense_rank(){f}{w}
percent_rank() -> float8 : percent_rank(){f}{w}
cume_dist() -> float8 : cume_dist(){f}{w}
ntile(int4) -> int4 : CAST(ntile(CASE WHEN {0} <= 0 THEN CAST(error('22014|argument of ntile must be greater than zero') AS INTEGER) ELSE {0} END){f}{w} AS INTEGER)
lag(any) -> = : lag({0}){f}{w}
lag(any, int4) -> = : lag({0}, {1}){f}{w}
lag(any, int4, same) -> = : lag({0}, {1}, {2}){f}{w}
lead(any) -> = : lead({0}){f}{w}
lead(any, int4) -> = : lead({0}, {1}){f}{w}
lead(any, int4, same) -> = : lead({0}, {1}, {2}){f}{w}
first_value(any) -> = : first_value({0}){f}{w}
last_value(any) -> = : last_value({0}){f}{w}
nth_value(any, int4) -> = : nth_value({0}, CASE WHEN {1} <= 0 THEN CAST(error('22016|argument of nth_value must be greater than zero') AS INTEGER) ELSE {1} END){f}{w}
"""


ROW_FUNCTIONS = frozenset({
    "generate_series", "generate_subscripts", "json_array_elements", "json_array_elements_text", "json_object_keys", "jsonb_array_elements", "jsonb_array_elements_text", "jsonb_object_keys", "jsonb_path_query", "regexp_matches", "regexp_split_to_table", "string_to_table", "unnest"})
"""Those that give rows."""


class Signature(NamedTuple):
    """A function with its arguments."""

    name: str
    arguments: tuple[str, ...]
    returns: str
    sql: str
    volatile: bool = False


def _parse(text: str) -> dict[str, list[Signature]]:
    found: dict[str, list[Signature]] = defaultdict(list)
    for line in text.strip().splitlines():
        matched = re.fullmatch(r"(!?)(\w+)\(([^)]*)\) -> (\S+)(?: : (.*))?", line)
        assert matched is not None, line
        arguments = tuple(each.strip() for each in matched[3].split(",") if each.strip())
        places = ", ".join(f"{{{n}}}" for n in range(len(arguments)))
        found[matched[2]].append(Signature(
            matched[2], arguments, matched[4], matched[5] or f"{matched[2]}({places})", bool(matched[1])))  # fmt: skip
    return dict(found)


SCALARS = _parse(_SCALARS)
AGGREGATES = _parse(_AGGREGATES)
WINDOWS = _parse(_WINDOWS)
