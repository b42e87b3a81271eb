package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/console"
)

func TestDiskFinding(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		free    uint64
		verdict console.Verdict
		detail  string
	}{
		{0, console.VerdictProblem, "0 MiB free for /data"},
		{diskProblem - 1, console.VerdictProblem, "1023 MiB free for /data"},
		{diskProblem, console.VerdictWarning, "1.0 GiB free for /data"},
		{diskWarning - 1, console.VerdictWarning, "5.0 GiB free for /data"},
		{diskWarning, console.VerdictOK, "5.0 GiB free for /data"},
	} {
		found := diskFinding(test.free, "/data")
		require.Equal(t, test.verdict, found.Verdict, "%d bytes", test.free)
		require.Equal(t, test.detail, found.Detail)
		require.Equal(t, test.verdict == console.VerdictOK, found.Remedy == "", "%d bytes", test.free)
	}
}
