-- +goose Up
-- Which events of its types an endpoint gets: JSON as internal/filter takes it; null is all of them. Text keeps numbers as they were written.
alter table endpoints add column filter text check (octet_length(filter) <= 8192);
