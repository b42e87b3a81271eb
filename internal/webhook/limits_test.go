package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLimitsOrDefaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ own, byDefault, want Limits }{
		"nothing is no limit":              {},
		"the default's, with its burst":    {Limits{}, Limits{RequestsPerSecond: 5, Burst: 50}, Limits{RequestsPerSecond: 5, Burst: 50}},
		"a rate has a second's burst":      {Limits{RequestsPerSecond: 2.5}, Limits{}, Limits{RequestsPerSecond: 2.5, Burst: 3}},
		"a slow rate lets one through":     {Limits{RequestsPerSecond: 0.01}, Limits{}, Limits{RequestsPerSecond: 0.01, Burst: 1}},
		"its own rate, not their burst":    {Limits{RequestsPerSecond: 2}, Limits{RequestsPerSecond: 5, Burst: 50}, Limits{RequestsPerSecond: 2, Burst: 2}},
		"its own burst, at their rate":     {Limits{Burst: 7}, Limits{RequestsPerSecond: 5, Burst: 50}, Limits{RequestsPerSecond: 5, Burst: 7}},
		"a burst without a rate is no use": {Limits{Burst: 7}, Limits{}, Limits{Burst: 7}},
		"requests other than events": {
			Limits{}, Limits{OtherRequestsPerSecond: 50, OtherBurst: 200}, Limits{OtherRequestsPerSecond: 50, OtherBurst: 200},
		},
		"its own rate of all is instead of their rate of others": {
			Limits{RequestsPerSecond: 100}, Limits{OtherRequestsPerSecond: 50, OtherBurst: 200}, Limits{RequestsPerSecond: 100, Burst: 100, OtherBurst: 200},
		},
		"its own rate of others": {
			Limits{RequestsPerSecond: 100, OtherRequestsPerSecond: 7}, Limits{OtherRequestsPerSecond: 50, OtherBurst: 200},
			Limits{RequestsPerSecond: 100, Burst: 100, OtherRequestsPerSecond: 7, OtherBurst: 7},
		},
		"quotas one by one": {
			Limits{Endpoints: 3}, Limits{Endpoints: 9, PendingDeliveries: 10, EndpointsPerEvent: 11, RunningReplays: 12},
			Limits{Endpoints: 3, PendingDeliveries: 10, EndpointsPerEvent: 11, RunningReplays: 12},
		},
	} {
		require.Equal(t, c.want, c.own.Or(c.byDefault), name)
	}
}
