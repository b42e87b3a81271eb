-- +goose Up

-- A second layer of protection (docs/adr/0021, database roles; docs/security-database.md):
-- processes use group roles with the least privileges, and row-level security hides rows of
-- other tenants. The owner, which migrates, is not restricted.
--
-- Roles belong to the whole cluster. The migration creates missing roles. If the owner has
-- no right to create roles, an administrator must create them first.
--
-- +goose StatementBegin
do $roles$
declare
    -- The right to take a role (PostgreSQL 16 distinguishes it from membership).
    take constant text := case when current_setting('server_version_num')::int >= 160000 then 'SET' else 'MEMBER' end;
    by_hand constant text := 'create role everpost_ingest nologin noinherit; create role everpost_operator nologin noinherit; '
        'create role everpost_api nologin noinherit; create role everpost_worker nologin noinherit; '
        'grant everpost_ingest, everpost_operator to everpost_api; grant everpost_ingest to everpost_worker; ';
    name text;
    pair text[];
begin
    -- Other migrations in this database wait. One in another database may still create the
    -- roles first, which is fine.
    perform pg_advisory_xact_lock(hashtextextended('everpost/roles', 0));
    foreach name in array array['everpost_ingest', 'everpost_operator', 'everpost_api', 'everpost_worker'] loop
        begin
            if not exists (select from pg_roles where rolname = name) then
                execute format('create role %I nologin noinherit', name);
            end if;
        exception when duplicate_object or unique_violation or insufficient_privilege then null;
        end;
        if not exists (select from pg_roles where rolname = name) then
            raise insufficient_privilege using message = format(
                'the role %I may not make the roles that Everpost works in; have a superuser run, once, and migrate again:  %sgrant everpost_api, everpost_worker to %1$I;',
                current_user, by_hand);
        end if;
    end loop;
    foreach pair slice 1 in array array[
        ['everpost_api', 'everpost_ingest'], ['everpost_api', 'everpost_operator'], ['everpost_worker', 'everpost_ingest'],
        [current_user::text, 'everpost_api'], [current_user::text, 'everpost_worker']] loop
        begin
            if not pg_has_role(pair[1], pair[2], take) then
                execute format('grant %I to %I', pair[2], pair[1]);
            end if;
        exception when unique_violation or internal_error or insufficient_privilege then null;
        end;
        -- The owner's own memberships are optional: the operator decides about them.
        if pair[1] <> current_user and not pg_has_role(pair[1], pair[2], take) then
            raise insufficient_privilege using message = format(
                'the role %I may not grant %I to %I; have a superuser run, once, and migrate again:  grant %2$I to %3$I;', current_user, pair[2], pair[1]);
        end if;
    end loop;
    execute format('grant usage on schema %I to everpost_api, everpost_operator, everpost_ingest, everpost_worker', current_schema());
end
$roles$;
-- +goose StatementEnd

grant select on everpost_schema_version to everpost_api, everpost_worker;

-- api: one tenant's own data. The transaction's setting selects the tenant.
grant select, update (endpoints_version) on tenants to everpost_api;
grant select, insert, update (revoked_at) on api_keys to everpost_api;
grant select, insert, update on endpoints to everpost_api;
grant select, insert, update, delete on endpoint_secrets to everpost_api;
grant select, delete on endpoint_trouble to everpost_api;
grant select on endpoint_health to everpost_api;
grant select, insert on audit_log to everpost_api;
grant select, insert on events to everpost_api;
grant select, insert, update on deliveries to everpost_api;
grant select on attempts to everpost_api;
grant select, insert, update on outbox to everpost_api;
grant select on idempotency_keys to everpost_api;
grant select, insert, update on replays to everpost_api;

-- operator: tenants, keys and the audit log of all tenants; no payloads or deliveries.
grant select, insert, update, delete on tenants to everpost_operator;
grant select, insert, update (revoked_at, last_used_at) on api_keys to everpost_operator;
grant select (id, tenant_id, deleted_at) on endpoints to everpost_operator;
grant select, insert on audit_log to everpost_operator;

-- ingest: batched inserts of events of several tenants. It inserts, and reads no payload.
grant select (id, endpoints_version) on tenants to everpost_ingest;
grant insert on events to everpost_ingest;
grant insert on outbox to everpost_ingest;
grant select, insert, delete, update (event_id, event_ids) on idempotency_keys to everpost_ingest;

-- worker: deliveries of all tenants, retention, rewrapping; no API keys.
grant select, update (endpoints_version) on tenants to everpost_worker;
grant select, update on endpoints to everpost_worker;
grant select, update (kek_id, wrapped_key), delete on endpoint_secrets to everpost_worker;
grant select, insert, update, delete on endpoint_trouble, endpoint_health to everpost_worker;
grant insert on audit_log to everpost_worker;
grant select, insert, delete, update (reason) on events to everpost_worker; -- update: to lock rows
grant select, insert, update, delete on deliveries, outbox, replays, replay_releases to everpost_worker;
grant select, insert, delete on attempts to everpost_worker;
grant select, delete on idempotency_keys to everpost_worker;
-- Tables that retention reads directly.
grant select on events_default, deliveries_default, attempts_default to everpost_worker;

-- The response to a repeated request: all columns of an event but its payload.
create view event_heads as
    select id, tenant_id, type, external_id, octet_length(payload) as payload_size, endpoint_ids, reason, created_at, deliver_at from events;
grant select on event_heads to everpost_ingest;

-- Policies. A role sees no rows of a table that has no policy for it.
alter table tenants enable row level security;
alter table api_keys enable row level security;
alter table endpoints enable row level security;
alter table endpoint_secrets enable row level security;
alter table endpoint_trouble enable row level security;
alter table endpoint_health enable row level security;
alter table audit_log enable row level security;
alter table events enable row level security;
alter table deliveries enable row level security;
alter table attempts enable row level security;
alter table outbox enable row level security;
alter table idempotency_keys enable row level security;
alter table replays enable row level security;
alter table replay_releases enable row level security;

create policy every_tenant on tenants to everpost_operator, everpost_ingest, everpost_worker using (true) with check (true);
create policy every_tenant on api_keys to everpost_operator using (true) with check (true);
create policy every_tenant on endpoints to everpost_operator, everpost_worker using (true) with check (true);
create policy every_tenant on endpoint_secrets to everpost_worker using (true) with check (true);
create policy every_tenant on endpoint_trouble to everpost_worker using (true) with check (true);
create policy every_tenant on endpoint_health to everpost_worker using (true) with check (true);
create policy every_tenant on audit_log to everpost_operator, everpost_worker using (true) with check (true);
create policy every_tenant on events to everpost_ingest, everpost_worker using (true) with check (true);
create policy every_tenant on deliveries to everpost_worker using (true) with check (true);
create policy every_tenant on attempts to everpost_worker using (true) with check (true);
create policy every_tenant on outbox to everpost_ingest, everpost_worker using (true) with check (true);
create policy every_tenant on idempotency_keys to everpost_ingest, everpost_worker using (true) with check (true);
create policy every_tenant on replays to everpost_worker using (true) with check (true);
create policy every_tenant on replay_releases to everpost_worker using (true) with check (true);

-- After a transaction that set it, the setting is '' and not null.
create policy one_tenant on tenants to everpost_api using (id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on api_keys to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on endpoints to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on audit_log to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on events to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on deliveries to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on outbox to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on idempotency_keys to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on replays to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
-- Access through the row that they belong to. This is a comparison because the planner may
-- turn an EXISTS into a hash table of all the tenant's rows.
create policy one_tenant on endpoint_secrets to everpost_api using (
    endpoint_id = (select e.id from endpoints e where e.id = endpoint_id and e.tenant_id = nullif(current_setting('everpost.tenant', true), '')));
create policy one_tenant on endpoint_trouble to everpost_api using (
    endpoint_id = (select e.id from endpoints e where e.id = endpoint_id and e.tenant_id = nullif(current_setting('everpost.tenant', true), '')));
create policy one_tenant on endpoint_health to everpost_api using (
    endpoint_id = (select e.id from endpoints e where e.id = endpoint_id and e.tenant_id = nullif(current_setting('everpost.tenant', true), '')));
create policy one_tenant on attempts to everpost_api using (
    delivery_id = (select d.id from deliveries d where d.id = delivery_id and d.tenant_id = nullif(current_setting('everpost.tenant', true), '')));

-- Partitions belong to the owner, and no other role has rights on a single one: workers
-- create and drop them through these functions, which do nothing else. Each runs with the
-- rights of its owner and in this schema, whatever the caller's search_path is.
--
-- +goose StatementBegin
do $functions$
begin
    execute format($create$
        create function everpost_make_partition(parent text, name text, low uuid, high uuid) returns void
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        begin
            if parent not in ('events', 'deliveries', 'attempts') or name !~ ('^' || parent || '_[0-9]{8}$') then
                raise insufficient_privilege using message = 'not a partition of ours: ' || name;
            end if;
            execute format('create table %%I (like %%I including all)', name, parent);
            execute format('alter table %%I attach partition %%I for values from (%%L) to (%%L)', parent, name, low, high);
        end
        $body$
    $create$, current_schema());
    execute format($create$
        create function everpost_drop_partitions(names text[]) returns void
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        begin
            if names is null or exists (select from unnest(names) n where n is null or n !~ '^(events|deliveries|attempts)_[0-9]{8}$') then
                raise insufficient_privilege using message = 'not partitions of ours';
            end if;
            execute (select 'drop table if exists ' || string_agg(quote_ident(n), ', ' order by at) from unnest(names) with ordinality u (n, at));
        end
        $body$
    $create$, current_schema());
end
$functions$;
-- +goose StatementEnd
revoke all on function everpost_make_partition(text, text, uuid, uuid), everpost_drop_partitions(text[]) from public;
grant execute on function everpost_make_partition(text, text, uuid, uuid), everpost_drop_partitions(text[]) to everpost_worker;
