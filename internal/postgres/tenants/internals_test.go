package tenants

import "time"

// CountPendingFor sets for how long a count of pending deliveries is used.
func (s *Tenants) CountPendingFor(d time.Duration) { s.quotas.countFor = d }
