package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLackedMemory(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		code int
		log  string
		want bool
	}{
		"the runtime's fatal error":     {2, "\nfatal error: runtime: cannot allocate memory\n", true},
		"no stack for a thread":         {2, "\nruntime/cgo: pthread_create failed: Resource temporarily unavailable\n", true},
		"SIGSEGV in the collector":      {2, "\nSIGSEGV: segmentation violation\n", true},
		"a signal":                      {-1, "", true},
		"it says so and gives up":       {1, "\nfork/exec postgres: cannot allocate memory\n", true},
		"it gives up for another cause": {1, "\nthe database does not answer\n", false},
		"it ends without an error":      {0, "", false},
		"a panic":                       {2, "\npanic: assignment to entry in nil map\n", false},
		"a panic for lack of memory":    {2, "\npanic: cannot allocate memory\n", false},
	} {
		require.Equal(t, of.want, lackedMemory(of.code, []byte(of.log)), name)
	}
}
