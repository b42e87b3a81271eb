// What the tests look into.

package retention

import "context"

func (s *Retention) RetainDay(a0 context.Context, a1 oldDay) (bool, int64, error) {
	return s.retainDay(a0, a1)
}

type OldDay = oldDay
