package admission

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// When a receiver that hung answers at once again, what waits for it goes soon, and not at the times
// that the latency of the hang has reserved.
func TestRecoveryFromAHang(t *testing.T) {
	t.Parallel()
	const begins = 10 * time.Second
	for _, slots := range []int{1, 2, 10} {
		for _, hang := range []time.Duration{3 * time.Second, 8 * time.Second, 14 * time.Second} {
			for _, n := range []int{5, 12, 40, 1000} {
				t.Run(fmt.Sprintf("%d slots, %s, %d deliveries", slots, hang, n), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						s := newSim(t, Limits{MaxInFlight: slots}, func(at time.Duration) (time.Duration, Result) {
							if at < begins {
								return 5 * time.Millisecond, delivered(0)
							}
							return max(5*time.Millisecond, begins+hang-at), delivered(0)
						})
						s.stream(30, time.Second)
						s.sleep(begins - s.now())
						s.stream(n, time.Second)
						s.sleep(time.Minute)
						s.end()
						require.Equal(t, len(s.all), s.delivered())
						for _, d := range s.all {
							require.Less(t, d.done, begins+hang+20*time.Second)
						}
						average, _ := s.returns()
						require.LessOrEqual(t, average, 3.0)
						require.LessOrEqual(t, s.holds(), 1.5)
					})
				})
			}
		}
	}
}
