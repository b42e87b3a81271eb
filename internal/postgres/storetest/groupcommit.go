package storetest

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
)

// HandInTogether hands items in so that one flush gets all of them, and returns what becomes
// of each.
func HandInTogether[T interface{ Tenant() string }](t *testing.T, op string, flush func(context.Context, []T) error, items []T) []error {
	t.Helper()
	begun, goOn := make(chan struct{}), make(chan struct{})
	var first sync.Once
	w := postgres.NewWriter(op, len(items)*maxHeavy, func(ctx context.Context, some []T) error {
		held := false
		first.Do(func() { held = true })
		if held {
			close(begun)
			<-goOn
			return nil
		}
		return flush(ctx, some)
	}, nil)
	defer w.Stop()
	errs := make([]error, len(items))
	var all sync.WaitGroup
	all.Go(func() { assert.NoError(t, w.Do(t.Context(), items[0])) }) // is not written
	<-begun
	for i, item := range items {
		all.Go(func() { errs[i] = w.Do(t.Context(), item) })
	}
	require.Eventually(t, func() bool { return w.Waiting() == len(items) }, Eventually, Poll)
	close(goOn)
	all.Wait()
	return errs
}

// maxHeavy is more than an item of these tests weighs.
const maxHeavy = 10
