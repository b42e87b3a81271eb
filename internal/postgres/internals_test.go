package postgres

import "github.com/jackc/pgx/v5/pgxpool"

// Lists is what bounds lists.
func (s *Core) Lists() *listLimit { return s.lists }

// Clock is the database's clock.
func (s *Core) Clock() *clock { return s.clock }

// Misname makes row-level security see another tenant than the statements name.
func (s *Core) Misname(tenantID string) { s.misnamed = tenantID }

// TenantPool is the pool for tenants and operators.
func (s *Core) TenantPool() *pgxpool.Pool { return s.pool }
