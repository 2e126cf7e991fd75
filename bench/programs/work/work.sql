/* Inserts, an index, joins, groups and text functions; SCALE is replaced. */
create table t(a integer, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 1200 * SCALE)
  insert into t select i * 7919 % 10007, hex(i * 31337), i / 7.0 from n;
create index by_a on t(a);
select count(*), sum(a), max(b), round(avg(c), 3) from t;
select a % 7, count(*), group_concat(substr(b, 1, 2)) from (select * from t limit 200) group by 1;
select count(*) from t x join t y on x.a = y.a + 1;
update t set b = upper(b) || a where a % 5 = 0;
delete from t where a % 11 = 0;
select count(*), sum(length(b)) from t where b like '%3%7%';
select b from t order by b desc limit 3;
