-- +goose Up

-- A process without an address owns no lanes and admits no requests: an API. It forwards new deliveries to the owners.
create policy every_lane on lanes for select to everpost_operator using (true);
create policy every_process on processes for select to everpost_operator using (true);
create policy add_api on processes for insert to everpost_operator with check (address = '');
create policy renew_api on processes for update to everpost_operator using (address = '') with check (address = '');
create policy remove_api on processes for delete to everpost_operator using (address = '');
grant select on lanes to everpost_operator;
grant select, insert, update (leaving, seen_until), delete on processes to everpost_operator;
