package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/openapitest"
)

// contract is the API's document in the tree, and the transports that hold every
// answer of every test against it.
var contract struct {
	sync.Mutex

	document *openapitest.Document
	watches  []*openapitest.Transport
}

// watched is a transport whose answers are held against the contract: one that
// violates it is an error of its request, and of the whole run.
func watched(base http.RoundTripper) http.RoundTripper {
	contract.Lock()
	defer contract.Unlock()
	if contract.document == nil {
		text, err := os.ReadFile(filepath.Join("..", "..", "api", "openapi.yaml"))
		if err == nil {
			contract.document, err = openapitest.Parse(text)
		}
		if err != nil {
			panic(err)
		}
	}
	watch := &openapitest.Transport{Document: contract.document, Base: base}
	contract.watches = append(contract.watches, watch)
	return watch
}

// keptContract says what violated the contract, also where a test took the request's
// error for an outage that it had made itself, and whether it was looked for at all.
func keptContract() bool {
	contract.Lock()
	defer contract.Unlock()
	checked, kept := 0, true
	for _, watch := range contract.watches {
		found, n := watch.Violations()
		checked += n
		for _, violation := range found {
			fmt.Fprintln(os.Stderr, "e2e:", violation)
			kept = false
		}
	}
	fmt.Fprintf(os.Stdout, "e2e: %d answers were held against the contract\n", checked)
	if !lookedEnough(checked, len(contract.watches), isPart()) {
		fmt.Fprintln(os.Stderr, "e2e: no answer was held against the contract")
		return false
	}
	return kept
}

// lookedEnough reports whether that nothing violated the contract means something: some
// answer was checked. Part of the tests may make no request at all.
func lookedEnough(checked, transports int, part bool) bool {
	return checked > 0 || part && transports == 0
}

// isPart reports whether only some of the tests run.
func isPart() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return true
		}
	}
	return false
}

func TestContractIsLookedAt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		checked, transports int
		part, enough        bool
	}{
		{0, 0, false, false}, {0, 3, false, false}, {0, 3, true, false}, {0, 0, true, true}, {1, 3, false, true}, {1, 3, true, true},
	} {
		require.Equal(t, c.enough, lookedEnough(c.checked, c.transports, c.part), c)
	}
}

// The document that is served is the one in the tree, but for the version.
func TestTheContractIsServed(t *testing.T) {
	t.Parallel()
	in := shared(t)
	a, err := (&apiClient{base: in.addr["api"], http: in.http}).call(context.WithoutCancel(t.Context()), http.MethodGet, "/openapi.yaml", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.status)
	want, err := os.ReadFile(filepath.Join("..", "..", "api", "openapi.yaml"))
	require.NoError(t, err)
	lines, served := strings.Split(string(want), "\n"), strings.Split(string(a.body), "\n")
	require.Len(t, served, len(lines))
	for i, line := range lines {
		if strings.HasPrefix(line, "  version: ") {
			require.True(t, strings.HasPrefix(served[i], "  version: "))
			continue
		}
		require.Equal(t, line, served[i])
	}
}
