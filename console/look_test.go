package console

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Live pages are made one after another, with a rest between them that follows from how long one took. A slow one
// does not stop the others for long, and other pages do not wait.
func TestLooksRest(t *testing.T) {
	t.Parallel()
	for took, rest := range map[time.Duration]time.Duration{
		time.Millisecond: 50 * time.Millisecond, 10 * time.Millisecond: 500 * time.Millisecond, 5 * time.Second: liveEvery,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newMemory().console(t)
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console/t/acme/", http.NoBody)
			look := s.newPage(httptest.NewRecorder(), request)
			look.live = &stream{}
			leave, err := look.enterPages()
			require.NoError(t, err)
			advance(took)
			leave()
			began := time.Now()

			other, err := s.newPage(httptest.NewRecorder(), request).enterPages()
			require.NoError(t, err)
			other()
			require.Zero(t, time.Since(began))

			leave, err = look.enterPages()
			require.NoError(t, err)
			require.Equal(t, rest, time.Since(began))
			leave()
			advance(liveEvery) // the last rest ends
		})
	}
}

// advance moves the clock of a synctest bubble on. No real time passes.
func advance(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the clock is synctest's
}
