-- +goose Up

-- How many rows are sealed with which key, over all tenants: each process compares it with
-- its keys when it starts. Expired rows need no key.
create view kek_uses as
    select kek_id, 'signing secrets' as what, count(*) as used from endpoint_secrets
    where expires_at is null or expires_at >= now() group by 1
    union all
    select headers_kek_id, 'headers', count(*) from endpoints where headers_kek_id is not null group by 1
    union all
    select auth_kek_id, 'credentials', count(*) from endpoints where auth_kek_id is not null group by 1;
grant select on kek_uses to everpost_operator, everpost_worker;

-- The audit log belongs to the owner, like partitions: retention deletes its oldest entries
-- through this function, which does nothing else and never deletes entries of the last 29
-- days. below bounds the ids that are examined.
--
-- +goose StatementBegin
do $functions$
begin
    execute format($create$
        create function everpost_prune_audit_log(before timestamptz, below uuid, most integer) returns bigint
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        declare
            gone bigint;
        begin
            if before is null or before > now() - interval '29 days' then
                raise insufficient_privilege using message = 'the audit log is kept for 29 days at least';
            end if;
            delete from audit_log where id in (
                select id from audit_log a where a.id < below and a.at < before order by id limit most);
            get diagnostics gone = row_count;
            return gone;
        end
        $body$
    $create$, current_schema());
end
$functions$;
-- +goose StatementEnd
revoke all on function everpost_prune_audit_log(timestamptz, uuid, integer) from public;
grant execute on function everpost_prune_audit_log(timestamptz, uuid, integer) to everpost_worker;
