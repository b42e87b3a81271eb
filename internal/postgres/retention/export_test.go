// Names for the tests, which are in a package of their own.

package retention

import "context"

func (s *Retention) RetainDay(ctx context.Context, d oldDay) (bool, int64, error) {
	return s.retainDay(ctx, d)
}

type OldDay = oldDay

func (s *Retention) BoundTenants(batches int) { s.tenantBatches = batches }
